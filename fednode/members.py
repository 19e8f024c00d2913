"""How members are named, how many holders it takes to open, and how many clients a round needs."""

from functools import lru_cache


def least_threshold(holders: int, corrupt: int = 0) -> int:
    """The fewest holders t of k that may open a sum, so that 2t - k is above `corrupt`: 3 of 5 for none, 4 for 1 or 2.

    A node that shows different holders different rosters needs 2t - k corrupt ones to have both signed by t holders,
    which is what each of them asks for before it opens.
    """
    return (holders + corrupt) // 2 + 1


def corrupt_holders(threshold: int, holders: int) -> int:
    """How many corrupt holders a committee withstands beside a node that lies: 2t - k - 1."""
    return 2 * threshold - holders - 1


def default_survivors(clients: int) -> int:
    """Three quarters of the clients, rounded up: the fewest updates of a sum where no setting says more or fewer."""
    return -(-3 * clients // 4)


def clients_a_round(clients: int, rounds: int, each: int | None) -> int:
    """How many clients to expect in a round, where each takes part in `each` of the rounds; all without."""
    return clients if each is None else clients * each // rounds


@lru_cache(maxsize=8)
def member_names(role: str, count: int) -> tuple[str, ...]:
    """Names of one role in a run that enrols its own members: `client-01` to `client-20`, `holder-1` to `holder-5`."""
    width = len(str(count))
    return tuple(f"{role}-{number:0{width}d}" for number in range(1, count + 1))
