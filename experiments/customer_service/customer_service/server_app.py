"""The ServerApp: FedNode's node over Flower's grid."""

from fednode.assemble.flower_app import build

app = build()
