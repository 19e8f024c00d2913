"""Raw schemes. Nothing outside `fednode_crypto` may import from here: every check that makes them safe stands in front."""
