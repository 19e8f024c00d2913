"""The client unit, end to end: local training, one clipped update a client, the server's optimiser, the ledger."""

import pytest
from kit.smallrun import messages, report_of, small_run


@pytest.mark.parametrize(("optimiser", "rate"), [("sgd", 20.0), ("momentum", 20.0), ("adam", 1.0)])
def test_a_hundred_clients_train_on_their_own_and_the_model_learns(tmp_path, optimiser, rate):
    result = small_run(
        tmp_path,
        data=str(messages(tmp_path, 800)),
        clients=100,
        rounds=3,
        unit="client",
        learning_rate=rate,
        server_optimiser=optimiser,
        proximal=0.01,
        features=32,
    )
    report = report_of(result.folder)
    assert report["outcome"] == "finished"
    assert [len(one["survivors"]) for one in report["rounds"]] == [100, 100, 100]
    assert report["rounds"][-1]["accuracy"] > 0.6
    assert report["claim"]["unit"] == "client"
    assert 1.0 < report["claim"]["epsilon"] <= 8.0
    assert (report["task"]["records"], report["task"]["divisor"], report["mechanism"]["max_records"]) == (100, 100.0, 1)
