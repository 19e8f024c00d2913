"""Settings as Flower's run config, and back: dashes in the names, "" for what is not set. Faults do not travel."""

from collections.abc import Mapping
from functools import lru_cache

from fednode.settings.model import RunSettings
from fednode.settings.sources import resolve

RunConfig = dict[str, str | int | float | bool]

APP_KEYS = ("run-folder", "key-root", "cohort", "node-key-folder")
"""What a run config tells the apps beside the settings: the run's folder, where simulated keys are, the cohort file,
the node's key folder."""


def to_run_config(settings: RunSettings) -> RunConfig:
    """Every setting but the faults, under the name of its flag."""
    values = {name: getattr(settings, name) for name in RunSettings.model_fields if name != "faults"}
    return {name.replace("_", "-"): _plain(value) for name, value in values.items()}


def from_run_config(config: Mapping[str, object]) -> RunSettings:
    """The settings in a run config. Raises `ConfigError` as `resolve` does."""
    return _settings(tuple((key, type(value), value) for key, value in config.items()))


@lru_cache(maxsize=4)
def _settings(config: tuple[tuple[str, type, object], ...]) -> RunSettings:
    """Each member of a simulation reads the same config in each round."""
    given = {key.replace("-", "_"): value for key, _, value in config if key not in APP_KEYS and value != ""}
    return resolve(None, {}, given)


def default_run_config() -> RunConfig:
    """The run config of `experiments/customer_service`: the defaults, and "" for what follows from other settings."""
    return to_run_config(resolve(None, {}, {"engine": "flower"})) | dict.fromkeys(("min-survivors", *APP_KEYS), "")


def _plain(value: object) -> str | int | float:
    if isinstance(value, int | float):
        return value
    return "" if value is None else str(value)
