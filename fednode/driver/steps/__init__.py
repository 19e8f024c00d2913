"""The steps of a round that ask the holders."""
