"""The ClientApp: clients and key holders of FedNode."""

from fednode_clients.membership import Parts
from fednode_study.app import build_app

app = build_app(Parts())
