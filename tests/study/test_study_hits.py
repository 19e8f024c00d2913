"""What a model gets right, label by label."""

import numpy as np

from fednode.settings import RunSettings
from fednode_study.experiment import DataSettings, load_experiment


def test_hits_add_up_to_the_test_set_and_to_the_guesses() -> None:
    experiment = load_experiment(DataSettings.of(RunSettings.model_validate({"features": 16})))
    labels, truth = experiment.dataset.labels, experiment.dataset.test.labels
    always = {"weight": np.zeros((len(labels), 16), np.float32), "bias": np.eye(len(labels), dtype=np.float32)[3]}
    hits = experiment.hits(always)
    assert list(hits) == list(labels)
    assert [total for _, total in hits.values()] == [int((truth == number).sum()) for number in range(len(labels))]
    assert {name: right for name, (right, _) in hits.items() if right} == {labels[3]: hits[labels[3]][1]}
