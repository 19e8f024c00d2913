"""FedNode: a federated-learning aggregation node."""

__version__ = "0.1.0"
