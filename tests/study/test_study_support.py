import hashlib
from collections import Counter

import numpy as np
import pytest

from fednode_study import support
from fednode_study.data import load
from fednode_study.features import HashedText
from fednode_study.support_intents import INTENTS

PINNED = "0201c6cf754e10fa5c68c42b341b70b28a14e5dbca08d25bb319b6a2e704c5dd"


@pytest.fixture(scope="module")
def rows():
    return list(support.messages())


def test_the_set_is_the_same_bytes_on_every_machine(rows):
    lines = "".join(f"{text}\t{intent}\t{int(is_test)}\n" for text, intent, is_test in rows)
    assert hashlib.sha256(lines.encode()).hexdigest() == PINNED


def test_sizes_and_balance(rows):
    train = Counter(intent for _, intent, is_test in rows if not is_test)
    test = Counter(intent for _, intent, is_test in rows if is_test)
    assert set(train) == set(test) == set(INTENTS)
    assert len(INTENTS) == 25
    assert set(train.values()) == {320}
    assert set(test.values()) == {80}


def test_no_message_stands_twice_or_in_both_splits(rows):
    assert len({support.plain(text) for text, _, _ in rows}) == len(rows)


@pytest.mark.thorough
def test_a_linear_model_stays_below_98_percent_and_does_learn():
    from sklearn.linear_model import RidgeClassifier

    data, featuriser = load("support"), HashedText(1024)
    model = RidgeClassifier(alpha=1.0, solver="cholesky").fit(featuriser.transform(data.train.texts), data.train.labels)
    reached = float(np.mean(model.predict(featuriser.transform(data.test.texts)) == data.test.labels))
    assert 0.90 <= reached < 0.98
