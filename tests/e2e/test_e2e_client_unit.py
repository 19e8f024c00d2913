"""The client unit, end to end: local training, one clipped update a client, the server's optimiser, the ledger."""

import json

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
