import pytest

from fednode.members import member_names


@pytest.mark.parametrize(
    ("count", "first", "last"),
    [(1, "client-1", "client-1"), (9, "client-1", "client-9"), (20, "client-01", "client-20")],
)
def test_names_are_as_many_as_asked_sort_in_order_and_can_be_enrolled(count, first, last):
    names = member_names("client", count)
    assert (len(set(names)), names[0], names[-1]) == (count, first, last)
    assert sorted(names) == list(names)


def test_nobody_has_no_names():
    assert member_names("holder", 0) == ()
