"""One frozen value that says everything about a run, and where each part of it came from.

`fednode.toml` < environment (`FEDNODE_CLIENTS`) < flags (`--clients`). Nothing here imports Flower or torch.
"""

from fednode.settings.faults import Fault, parse_fault
from fednode.settings.model import RunSettings
from fednode.settings.sources import resolve
from fednode.settings.toml import to_toml

__all__ = ["Fault", "RunSettings", "parse_fault", "resolve", "to_toml"]
