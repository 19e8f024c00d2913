"""The unit customer: all records of one customer at one client are bounded together, and dealt together."""

from pathlib import Path

import numpy as np
import pytest
from kit.smallrun import report_of, small_run, small_settings

from fednode.assemble.planning import plan_run
from fednode.errors import ConfigError, DataError
from fednode.privacy.chain import replay
from fednode.settings import RunSettings, resolve
from fednode.units import UNITS
from fednode_clients.training.gradients import clipped_gradient_sum
from fednode_clients.training.models import linear_head
from fednode_study.data import CsvLayout, load, read_rows
from fednode_study.experiment import DataSettings, Experiment, load_experiment

CUSTOMERS, RECORDS = 40, 360
INTENTS = {"card": "lost my bank card", "pay": "money for the bill", "parcel": "the box came late"}


def shop(folder: Path) -> Path:
    """360 messages of 40 customers; customer 0 has a third of all, each of the others about six."""
    labels = sorted(INTENTS)
    lines = ["whose,text,label"]
    for number in range(RECORDS):
        label = labels[number % 3]
        whose = 0 if number % 3 == 0 and number % 2 == 0 else number % CUSTOMERS
        lines.append(f"customer {whose},{INTENTS[label]} {number},{label}")
    path = folder / "shop.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def settings_of(folder: Path, **changes: object) -> RunSettings:
    values = {"data": str(shop(folder)), "unit": "customer", "customer_column": "whose"}
    return small_settings(folder, **(values | changes))


def experiment_of(settings: RunSettings) -> Experiment:
    return load_experiment(DataSettings.of(settings))


@pytest.mark.parametrize("partition", ["iid", "dirichlet"])
def test_the_records_of_a_customer_go_to_one_client_and_every_record_to_one(tmp_path, partition):
    experiment = experiment_of(settings_of(tmp_path, partition=partition, alpha=0.3))
    whose = [set(experiment.customers(client).tolist()) for client in range(4)]
    assert sum(map(len, whose)) == len(set().union(*whose)) == CUSTOMERS
    rows = np.concatenate(experiment.shares)
    assert np.array_equal(np.sort(rows), np.arange(len(experiment.dataset.train)))
    if partition == "iid":
        assert [len(one) for one in whose] == [CUSTOMERS // 4] * 4


def test_a_client_for_each_customer_holds_the_records_of_that_one(tmp_path):
    experiment = experiment_of(settings_of(tmp_path, unit="client", clients=CUSTOMERS))
    whose = [tuple(set(experiment.customers(client).tolist())) for client in range(CUSTOMERS)]
    assert sorted(whose) == [(customer,) for customer in range(CUSTOMERS)]


def test_leaving_one_customer_out_moves_the_sum_of_its_client_by_at_most_the_clip(tmp_path):
    experiment, clip = experiment_of(settings_of(tmp_path)), 0.7
    model, moved = linear_head(64, 3), []
    for client in range(4):
        (rows, labels), groups = experiment.share(client), experiment.customers(client)
        whole = clipped_gradient_sum(model, rows, labels, clip, groups=groups).vector
        for customer in np.unique(groups):
            kept = groups != customer
            rest = clipped_gradient_sum(model, rows[kept], labels[kept], clip, groups=groups[kept]).vector
            moved.append(float(np.linalg.norm(whole - rest)))
    assert max(moved) <= clip and max(moved) > 0.99 * clip
    # the control: bounded record by record, the customer with most records moves it by many clips
    (rows, labels), groups = max(
        ((experiment.share(c), experiment.customers(c)) for c in range(4)), key=lambda one: len(one[1])
    )
    crowd = groups == np.bincount(groups).argmax()
    parts = [clipped_gradient_sum(model, rows[pick], labels[pick], clip).vector for pick in (crowd | True, ~crowd)]
    assert np.linalg.norm(parts[0] - parts[1]) > 5 * clip


def test_a_plan_counts_customers_and_not_records(tmp_path):
    plan = plan_run(settings_of(tmp_path))
    assert (plan.terms.unit, plan.terms.divisor, plan.terms.max_records) == ("customer", 40.0, 10)
    assert any("of about 40 customers" in line for line in plan.lines())
    assert plan_run(small_settings(tmp_path, data=str(shop(tmp_path)))).terms.divisor == 290.0


def test_a_run_names_its_unit_in_every_round_in_the_ledger_and_in_the_report(tmp_path):
    result = small_run(tmp_path, **settings_of(tmp_path, epsilon=50.0, min_noise=0.0).model_dump(exclude_unset=True))
    report = report_of(result.folder)
    assert report["outcome"] == "finished" and len(report["rounds"]) == 2
    assert report["guarantee"]["unit"] == "customer" and report["guarantee"]["adjacency"] == UNITS["customer"].differ
    assert report["task"]["records"] == 40
    claims = {claim["what"] for part in ("attested", "assumed") for claim in report["claims"][part]}
    assert {f"{UNITS['customer'].clipped} clipped to 1", UNITS["customer"].person} <= claims
    header = replay((result.folder / "ledger.jsonl").read_bytes(), "it").history.header
    assert header is not None and header.budget.adjacency == UNITS["customer"].adjacency
    page = (result.folder / "report.html").read_text(encoding="utf-8")
    assert "about 40 customers held by 4 clients" in " ".join(page.split())
    assert resolve(result.folder / "config.toml", {}, {}).customer_column == "whose"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("whose,text,label\nann,a,x\n,b,y\n", "line 3: the customer is empty"),
        ("whose,text,label\nann,a,x\n  ,b,y\n", "line 3: the customer is empty"),
        ("text,label,whose\na,x,ann\nb,y\n", "line 3: the customer is empty"),
        (
            "text,label,whose\na,x,ann\nb,y\n,y,z\nc,,z\n",
            "line 3: the customer.*line 4: the text.*line 5: the text",
        ),
        ("text,label\na,x\n", "'whose'.*--customer-column"),
        ("\n", "text,label,whose"),
    ],
)
def test_a_record_of_nobody_is_refused_by_its_line(tmp_path, content, says):
    file = tmp_path / "mine.csv"
    file.write_text(content)
    with pytest.raises(DataError, match=says):
        read_rows(file, CsvLayout(customer="whose"))


def test_customers_are_numbered_as_they_come_and_spaces_around_names_do_not_matter(tmp_path):
    (tmp_path / "train.csv").write_text("text,label,whose\na,x,ann\nb,y,bob\nc,x, ann \n")
    (tmp_path / "test.csv").write_text("text,label,whose\na,x,zoe\n")
    data = load(str(tmp_path), layout=CsvLayout(customer="whose"))
    assert data.train.customers.tolist() == [0, 1, 0]


def test_settings_that_do_not_say_whose_the_records_are_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="--customer-column"):
        plan_run(settings_of(tmp_path, customer_column=None))
    for column in ("text", "label"):
        with pytest.raises(ConfigError, match="customer_column"):
            plan_run(settings_of(tmp_path, customer_column=column))
    for data in ("support", "banking77"):
        with pytest.raises(DataError, match=f"{data} does not say whose"):
            plan_run(settings_of(tmp_path, data=data))
    with pytest.raises(ConfigError, match=r"40 customers .* 41 clients"):
        plan_run(settings_of(tmp_path, clients=41))
    with pytest.raises(ConfigError, match="customer_column would do nothing"):
        resolve(None, {}, {"customer_column": "whose"})
