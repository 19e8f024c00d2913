"""One frozen value that says everything about a run, and where each part of it came from.

`fednode.toml` < environment (`FEDNODE_CLIENTS`) < flags (`--clients`). Nothing here imports Flower or torch.
"""

from fednode.settings.faults import Fault, parse_fault
from fednode.settings.model import RunSettings
from fednode.settings.nearest import guess
from fednode.settings.run_config import RunConfig, default_run_config, from_run_config, to_run_config
from fednode.settings.sources import resolve
from fednode.settings.toml import to_toml, toml_text

__all__ = [
    "Fault",
    "RunConfig",
    "RunSettings",
    "default_run_config",
    "from_run_config",
    "guess",
    "parse_fault",
    "resolve",
    "to_run_config",
    "to_toml",
    "toml_text",
]
