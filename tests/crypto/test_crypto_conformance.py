"""All sums behind the one interface."""

from kit.crypto.plainsum import InsecureBoxedSum, InsecurePlainSum
from kit.crypto.scheme import BoxedContract, KeyedContract

from fednode_crypto import Demand, plan, scheme

SMALL = Demand(dimension=1_000, summands=6, value_bound=600_000, holders=5, threshold=4)
WIDE = Demand(dimension=20_000, summands=20, value_bound=406_872_060, holders=3, threshold=2)
LANES = Demand(dimension=147_000, summands=1_000, value_bound=2_048_000, holders=5, threshold=3)


class TestBfv(KeyedContract):
    scheme = scheme("bfv")
    params = plan("bfv", SMALL)


class TestBfvWide(KeyedContract):
    scheme = scheme("bfv")
    params = plan("bfv", WIDE)


class TestRing(BoxedContract):
    scheme = scheme("ring")
    params = plan("ring", SMALL)


class TestRingWide(BoxedContract):
    scheme = scheme("ring")
    params = plan("ring", WIDE)


class TestRingFourPrimes(BoxedContract):
    scheme = scheme("ring")
    params = plan("ring", LANES)

    def test_it_is_what_it_says(self) -> None:
        assert (self.params.ring_degree, self.params.blocks) == (8192, 2)


class TestInsecurePlainSum(KeyedContract):
    scheme = InsecurePlainSum()
    params = plan("bfv", SMALL)


class TestInsecureBoxedSum(BoxedContract):
    scheme = InsecureBoxedSum()
    params = plan("ring", SMALL)
