"""The ClientApp: clients and key holders of FedNode."""

from fednode_clients.app import build_app
from fednode_clients.membership import Parts

app = build_app(Parts())
