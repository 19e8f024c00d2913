"""Both sums behind the one interface."""

from kit.plainsum import InsecurePlainSum
from kit.scheme import SchemeContract

from fednode_crypto import Demand, plan, scheme

PARAMS = plan("bfv", Demand(dimension=1_000, summands=6, value_bound=600_000, holders=5, threshold=4))
WIDE = plan("bfv", Demand(dimension=20_000, summands=20, value_bound=406_872_060, holders=3, threshold=2))


class TestBfv(SchemeContract):
    scheme = scheme("bfv")
    params = PARAMS


class TestBfvWide(SchemeContract):
    scheme = scheme("bfv")
    params = WIDE


class TestInsecurePlainSum(SchemeContract):
    scheme = InsecurePlainSum()
    params = PARAMS
