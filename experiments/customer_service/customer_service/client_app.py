"""The ClientApp: clients and key holders of FedNode."""

from fednode_clients.app import build_app
from fednode_clients.membership import MemberParts
from fednode_study import study

app = build_app(MemberParts(), study.train)
