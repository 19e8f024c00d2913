"""Frozen values that both sides share: what an update is, who may send one, what a round is."""
