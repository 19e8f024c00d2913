"""A sealed run and the same run in the clear end with the same bits: nothing is lost or counted twice on the way."""

from itertools import count

import numpy as np
import pytest
from kit.crypto.insecure import InsecureRng
from kit.crypto.plainsum import InsecureBoxedSum, InsecurePlainSum
from kit.smallrun import report_of, small_run
from safetensors.numpy import load_file

from fednode.assemble.session import Environment
from fednode_crypto import scheme


def seeded():
    """A generator for each member, the same ones in every run."""
    seeds = count(1)
    return lambda: InsecureRng(next(seeds))


# a seal of ring draws from the same generator as the noise does, so only the first round's noise can be the same
@pytest.mark.parametrize(("kind", "rounds", "plain_sum"), [("bfv", 3, InsecurePlainSum), ("ring", 1, InsecureBoxedSum)])
def test_sealed_and_plain_runs_give_the_same_model(tmp_path, kind, rounds, plain_sum):
    faults = ("lost-before-upload@2:client-2", "garbage@3:client-4", "dead@2:holder-1", "slow@1:client-3")
    faults = tuple(fault for fault in faults if int(fault.partition("@")[2][0]) <= rounds)
    ended = {}
    for name, schemes in (("sealed", scheme), ("plain", lambda _: plain_sum())):
        (tmp_path / name).mkdir()
        inside = Environment(schemes=schemes, rng=seeded())
        result = small_run(tmp_path / name, inside, scheme=kind, rounds=rounds, min_survivors=3, faults=faults)
        assert result.error is None
        ended[name] = result.folder
    sealed, plain = (load_file(folder / "model.safetensors") for folder in ended.values())
    assert set(sealed) == set(plain) == {"weight", "bias"}
    assert all(sealed[name].tobytes() == plain[name].tobytes() and sealed[name].any() for name in sealed)
    reports = [report_of(folder) for folder in ended.values()]
    assert reports[0]["trust"]["model_digest"] == reports[1]["trust"]["model_digest"]
    assert [r["accuracy"] for r in reports[0]["rounds"]] == [r["accuracy"] for r in reports[1]["rounds"]]
    assert [r["survivors"] for r in reports[0]["rounds"]] == [r["survivors"] for r in reports[1]["rounds"]]


def test_another_seed_gives_another_model(tmp_path):
    models = []
    for seed in (1, 2):
        seeds = count(100 * seed)
        inside = Environment(schemes=lambda _: InsecurePlainSum(), rng=lambda seeds=seeds: InsecureRng(next(seeds)))
        models.append(load_file(small_run(tmp_path, inside, rounds=1).folder / "model.safetensors")["weight"])
    assert not np.array_equal(*models)
