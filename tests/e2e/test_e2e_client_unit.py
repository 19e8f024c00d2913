"""The client unit, end to end: local training, one clipped update a client, the server's optimiser, the ledger."""

from kit.smallrun import messages, report_of, small_run


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
