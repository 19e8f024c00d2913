import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fednode.errors import ConfigError
from fednode_study.partition import Partition, dirichlet, iid, parse


def skew(labels, shares):
    """Mean share of a client's commonest label."""
    return float(np.mean([np.bincount(labels[rows]).max() / len(rows) for rows in shares]))


@settings(max_examples=60, deadline=None)
@given(
    clients=st.integers(1, 30),
    extra=st.integers(0, 200),
    alpha=st.sampled_from([None, 1e-300, 0.01, 0.5, 1.0, 100.0]),
    seed=st.integers(0, 2**32 - 1),
)
def test_every_record_in_exactly_one_client_and_no_client_empty(clients, extra, alpha, seed):
    labels = np.random.default_rng(seed).integers(0, 5, clients + extra)
    shares = Partition(alpha).split(labels, clients, seed)
    assert len(shares) == clients
    assert all(len(rows) and rows.dtype == np.int64 and np.all(np.diff(rows) > 0) for rows in shares)
    assert np.array_equal(np.sort(np.concatenate(shares)), np.arange(clients + extra))
    again = Partition(alpha).split(labels, clients, seed)
    assert all(np.array_equal(a, b) for a, b in zip(shares, again, strict=True))


def test_iid_sizes_differ_by_one_at_most_and_the_seed_matters():
    sizes = [len(rows) for rows in iid(103, 10, 1)]
    assert max(sizes) - min(sizes) == 1
    assert not np.array_equal(iid(103, 10, 1)[0], iid(103, 10, 2)[0])


def test_smaller_alpha_is_more_skewed():
    labels = np.repeat(np.arange(10), 400)
    measured = [skew(labels, dirichlet(labels, 10, alpha, 3)) for alpha in (0.1, 1.0, 1000.0)]
    assert measured[0] > measured[1] > measured[2]
    assert measured[0] > 0.4
    assert measured[2] < 0.15


def test_parse_reads_what_str_writes():
    for text in ("iid", "dirichlet:0.5"):
        assert str(parse(text)) == text


@pytest.mark.parametrize(
    "text",
    ["", "IID", "dirichlet", "dirichlet:", "dirichlet:0", "dirichlet:-1", "dirichlet:nan", "dirichlet:inf", "x:1"],
)
def test_other_partitions_are_refused(text):
    with pytest.raises(ConfigError, match=r"iid|positive"):
        parse(text)


def test_more_clients_than_records_or_none_is_refused():
    with pytest.raises(ConfigError, match="use fewer clients or more data"):
        iid(3, 4, 0)
    with pytest.raises(ConfigError, match="give 1 or more"):
        dirichlet(np.zeros(3, dtype=np.int64), 0, 1.0, 0)
    with pytest.raises(ConfigError, match="positive number"):
        dirichlet(np.zeros(3, dtype=np.int64), 2, 0.0, 0)
