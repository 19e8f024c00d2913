"""How members are named, and how many holders it takes to open."""


def least_threshold(holders: int) -> int:
    """Two thirds of the holders, rounded up: 2 of 3, 3 of 4, 4 of 5, 7 of 10.

    With a threshold t of k, a node that shows different holders different rosters needs 2t - k corrupt ones to have
    both signed by t holders, which is what each of them asks for before it opens. A bare majority leaves that at 1; two
    thirds make it a third of the committee or more (3 where 4 of 5 open). Members insist on it whatever the node
    proposes, since the sum's parameters are the node's word.
    """
    return -(-2 * holders // 3)


def member_names(role: str, count: int) -> tuple[str, ...]:
    """Names of one role in a run that enrols its own members: `client-01` to `client-20`, `holder-1` to `holder-5`."""
    width = len(str(count))
    return tuple(f"{role}-{number:0{width}d}" for number in range(1, count + 1))
