"""The ServerApp: FedNode's node over Flower's grid."""

from fednode.assemble.serve import node_app

app = node_app()
