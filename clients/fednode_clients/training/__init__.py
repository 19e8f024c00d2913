"""Clipped gradient sums of torch models."""
