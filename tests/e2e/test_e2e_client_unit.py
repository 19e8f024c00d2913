"""The client unit, end to end: local training, one clipped update a client, the server's optimiser, the ledger."""

import json

import pytest
from kit.smallrun import messages, report_of, small_run

from fednode.privacy import DiscreteGaussianSum, epsilon


def test_a_hundred_clients_train_on_their_own_and_the_model_learns(tmp_path):
    (more := tmp_path / "more").mkdir()
    data = str(messages(more, 800))
    settings = {"clients": 100, "unit": "client", "learning_rate": 20.0, "proximal": 0.01, "features": 32}
    report = report_of(small_run(tmp_path, data=data, **settings).folder)
    assert report["outcome"] == "finished"
    assert [len(one["survivors"]) for one in report["rounds"]] == [100, 100]
    assert report["rounds"][-1]["accuracy"] > 0.6
    assert (report["guarantee"]["unit"], report["task"]["divisor"]) == ("client", 100.0)
    assert 1.0 < report["guarantee"]["epsilon"] <= 8.0


def test_clients_in_two_of_six_rounds_pay_for_two_and_the_report_says_what_outsiders_learn(tmp_path):
    settings = {
        "clients": 30,
        "unit": "client",
        "rounds": 6,
        "rounds_per_client": 2,
        "min_survivors": 4,
        "features": 16,
    }
    result = small_run(tmp_path, **settings)
    report = report_of(result.folder)
    released = [one for one in report["rounds"] if one["outcome"] == "released"]
    taken = [name for one in released for name in one["survivors"]]
    assert {taken.count(name) for name in taken} <= {1, 2}
    assert all(len(one["survivors"]) == one["invited"] < 30 for one in released)
    # each client is in one round of each half
    assert all(
        len(set(a["survivors"]) & set(b["survivors"])) == 0 for a in released[:2] for b in released[1:3] if a != b
    )
    lines = [json.loads(line) for line in (result.folder / "ledger.jsonl").read_text().splitlines()[1:]]
    per_client = {
        name: epsilon([DiscreteGaussianSum.from_dict(one["event"]) for one in lines if name in one["survivors"]], 1e-5)
        for name in taken
    }
    assert report["guarantee"]["epsilon"] == max(per_client.values()) <= 8.0
    assert "against those who do not know who took part" in report["mechanism"]["sampling"]


@pytest.mark.thorough
def test_a_first_clip_hundreds_of_times_too_large_comes_down_where_it_is_adaptive_at_the_same_price(tmp_path):
    (more := tmp_path / "more").mkdir()
    settings = {"data": str(messages(more, 800)), "clients": 40, "unit": "client", "features": 32, "rounds": 12}
    settings |= {"learning_rate": 1.0, "clip": 300.0}
    (of_fixed := tmp_path / "fixed").mkdir()
    (of_adaptive := tmp_path / "adaptive").mkdir()
    fixed = report_of(small_run(of_fixed, **settings).folder)
    result = small_run(of_adaptive, **settings, clip_quantile=0.5)
    adaptive = report_of(result.folder)
    clips = [one["clip"] for one in adaptive["rounds"]]
    assert clips[0] == 300.0 and clips[-1] < 30.0 and {one["clip"] for one in fixed["rounds"]} == {None}
    # noise of a round is in clips: what the last rounds add to the model is ten times less
    # neither the clip that is charged nor the price is another; the sum has one coordinate more
    prices = [report["guarantee"]["epsilon"] for report in (fixed, adaptive)]
    assert prices[0] == pytest.approx(prices[1], rel=1e-3) and prices[1] <= 8.0
    assert adaptive["mechanism"]["clip"] == fixed["mechanism"]["clip"] == 300.0
    sizes = [report["trust"]["sum_params"]["dimension"] for report in (fixed, adaptive)]
    assert sizes[1] == sizes[0] + 1 == adaptive["task"]["dimension"] + 1
    assert "followed a noisy quantile" in (result.folder / "report.html").read_text()
