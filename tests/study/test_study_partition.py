import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fednode.errors import ConfigError
from fednode_study.partition import dirichlet, iid


def split(labels, clients, alpha, seed):
    return iid(len(labels), clients, seed) if alpha is None else dirichlet(labels, clients, alpha, seed)


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
    shares = split(labels, clients, alpha, seed)
    assert len(shares) == clients
    assert all(len(rows) and rows.dtype == np.int64 and np.all(np.diff(rows) > 0) for rows in shares)
    assert np.array_equal(np.sort(np.concatenate(shares)), np.arange(clients + extra))
    again = split(labels, clients, alpha, seed)
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


def test_more_clients_than_records_or_none_is_refused():
    with pytest.raises(ConfigError, match=r"3 records .* 4 clients"):
        iid(3, 4, 0)
    with pytest.raises(ConfigError, match="0 clients"):
        dirichlet(np.zeros(3, dtype=np.int64), 0, 1.0, 0)
    for alpha in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(ConfigError, match=f"alpha is {alpha}"):
            dirichlet(np.zeros(3, dtype=np.int64), 2, alpha, 0)
