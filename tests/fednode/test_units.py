"""Units: one table, from which settings, plans, ledgers and claims take their words."""

from typing import get_args

import pytest

from fednode.errors import ConfigError
from fednode.privacy import Budget
from fednode.settings.fields import SettingFields
from fednode.units import UNITS, require_unit


def test_settings_know_the_units_of_the_table_and_protect_a_record_by_default():
    field = SettingFields.model_fields["unit"]
    assert get_args(field.annotation) == tuple(UNITS) == ("record", "customer", "client")
    assert field.default == Budget(8.0, 1e-5).unit == "record"


def test_every_unit_has_neighbours_of_its_own():
    assert [unit.adjacency for unit in UNITS.values()] == [
        "zero-out of one record",
        "zero-out of all records of one customer at one client",
        "zero-out of one client's update",
    ]
    for words in ("zeroed", "differ", "clipped", "person", "otherwise"):
        assert len({getattr(unit, words) for unit in UNITS.values()} - {""}) == len(UNITS), words


@pytest.mark.parametrize("name", ["", "records", "Record", "household", 1, None, ["record"]])
def test_what_is_no_unit_is_refused(name):
    with pytest.raises(ValueError, match="a record, a customer, a client"):
        require_unit(name)
    with pytest.raises(ConfigError):
        Budget(8.0, 1e-5, name)
