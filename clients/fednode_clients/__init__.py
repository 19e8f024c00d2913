"""The client side: data, training, privacy pipeline, holders, and the thin Flower skin."""
