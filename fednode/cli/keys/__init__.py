"""`fednode keys`: identities and cohorts."""
