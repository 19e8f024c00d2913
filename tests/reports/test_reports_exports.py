"""The ledger as a table, and the entry for the public registry."""

import csv
import io
from dataclasses import replace

import pytest
import yaml
from kit.sample_record import sample_record

from fednode.privacy import ChargeRecord, DiscreteGaussianSum, epsilon
from fednode.reports.exports import ledger_csv, registry_yaml
from fednode.reports.run_record import About, RunRecord

EVENT = DiscreteGaussianSum(1.0, 16, 1000, 10**10, contributors=19, failure=1e-30)
NAMES = tuple(f"client-{number:02d}" for number in range(1, 21))
CHARGES = [ChargeRecord(number, EVENT, NAMES, 1.7e9, 0.5 * number, "a-run") for number in (1, 3)]


def test_a_row_prices_its_charge_again() -> None:
    rows = list(csv.DictReader(io.StringIO(ledger_csv(CHARGES).decode())))
    assert [(row["round"], row["survivors"], row["epsilon_after"]) for row in rows] == [
        ("1", "20", "0.5"),
        ("3", "20", "1.5"),
    ]
    kinds = {"clip": float, "failure": float}
    names = ("clip", "grid_bits", "dimension", "local_variance", "contributors", "failure")
    again = [DiscreteGaussianSum(**{name: kinds.get(name, int)(row[name]) for name in names}) for row in rows]
    assert again == [EVENT, EVENT] and epsilon(again, 1e-5) == epsilon([EVENT, EVENT], 1e-5)
    assert rows[0]["names"].split() == list(CHARGES[0].survivors)
    assert rows[0]["time"] == "2023-11-14 22:13:20 UTC"


FIELDS = {
    "basic": "data_curators data_product_region data_product_type description intended_use name publication_date",
    "dp_variant": "data_domain unprotected_quantities variant_name",
    "privacy_loss": "privacy_parameters privacy_parameters_details privacy_unit privacy_unit_details",
    "deployment_model": "access_type actors data_source_type model_name model_name_details release_type "
    "release_type_details",
    "accounting": "composition post_processing",
    "implementation": "justification mechanisms preprocessing_and_hyperparameter_tuning",
    "administrative": "notes registry_authors",
}
"""The parts of an entry and their names, as the registry's schema has them."""


def entry(record: RunRecord) -> dict:
    found: dict = yaml.safe_load(registry_yaml(record))
    return found


def test_the_entry_has_the_fields_of_the_registry() -> None:
    found = entry(sample_record())
    assert set(found) == {"url_slug", "status", "tier", "deployment"} and (found["status"], found["tier"]) == (
        "Draft",
        3,
    )
    assert {part: " ".join(sorted(values)) for part, values in found["deployment"].items()} == FIELDS
    values = found["deployment"]
    assert values["dp_variant"]["variant_name"] == "Approximate DP"
    assert values["basic"]["data_product_type"] == "Machine learning model"
    assert values["deployment_model"]["model_name"] == "Federated"


def test_the_entry_says_what_the_report_says() -> None:
    record = sample_record()
    found = entry(record)
    values = found["deployment"]
    assert values["privacy_loss"]["privacy_parameters"] == {"epsilon": 7.874, "delta": 1e-5}
    assert values["basic"]["data_curators"] == ["Shop Inc."] and values["basic"]["name"] == "Intents of the shop"
    assert found["url_slug"] == "intents-of-the-shop-shop-inc--2023"
    assert "A study on one machine, not a deployment." in values["basic"]["description"]
    assert "10: no finite epsilon" in values["privacy_loss"]["privacy_parameters_details"]
    assert all(claim.what in values["implementation"]["justification"] for claim in record.claims.assumed)
    assert record.trust.ledger_head in values["administrative"]["notes"]


@pytest.mark.parametrize("name", ['a: "b" # c', "x\n- y", "{{ 1 }}", "%&*!|>'\\", "\u202e\x00"])
def test_whatever_a_setting_says_stays_text(name: str) -> None:
    found = entry(replace(sample_record(), about=About(name, name, name, name), run_id=name))["deployment"]
    shown = found["basic"]["name"]
    assert found["basic"]["data_curators"] == [shown] and {part: len(found[part]) for part in FIELDS} == {
        part: len(names.split()) for part, names in FIELDS.items()
    }


def test_without_words_of_the_settings_the_entry_says_so() -> None:
    found = entry(replace(sample_record(), about=About()))["deployment"]
    assert found["basic"]["intended_use"] == "Not stated." and found["basic"]["data_curators"] == ["not stated"]
