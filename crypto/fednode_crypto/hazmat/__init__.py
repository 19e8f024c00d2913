"""Raw schemes. Nothing outside `fednode_crypto` imports from here: the checks that make them safe stand in front."""
