"""A key holder's side of a round: box keys, rosters, opening; and the ceremony of a joint key."""
