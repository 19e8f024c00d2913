"""A FedNode study as a Flower app."""
