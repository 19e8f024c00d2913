"""How many holders it takes to open: the rule that settings and members share."""


def least_threshold(holders: int) -> int:
    """Two thirds of the holders, rounded up: 2 of 3, 3 of 4, 4 of 5, 7 of 10.

    With a threshold t of k, a node that shows different holders different rosters needs 2t - k corrupt ones to have
    both signed by t holders, which is what each of them asks for before it opens. A bare majority leaves that at 1; two
    thirds make it a third of the committee or more (3 where 4 of 5 open). Members insist on it whatever the node
    proposes, since the sum's parameters are the node's word.
    """
    return -(-2 * holders // 3)
