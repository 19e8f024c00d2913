"""The ClientApp: clients and key holders of FedNode."""

from fednode_clients.app import build_app
from fednode_clients.membership import Parts
from fednode_study import study

app = build_app(Parts(), study.train)
