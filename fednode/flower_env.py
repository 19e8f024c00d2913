"""Flower is kept to this machine: no telemetry, no update check, no installing at run time, a home of its own."""

from collections.abc import MutableMapping
from pathlib import Path


def flower_environment(home: Path) -> dict[str, str]:
    """Name the variables under which Flower stays silent and keeps its files under `home` (made absolute).

    Without the third variable `flwr run` installs an app's dependencies anew for every run, gigabytes at a time.
    """
    return {
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "FLWR_HOME": str(home.absolute()),
        "RAY_USAGE_STATS_ENABLED": "0",
    }


def quieten_flower(home: Path, environ: MutableMapping[str, str]) -> None:
    """Set in `environ` what the operator has not set; call it before `flwr` is imported, which reads these once."""
    for name, value in flower_environment(home).items():
        environ.setdefault(name, value)
