"""The command line: settings in, a run watched, one sentence and an exit code out."""

from fednode.cli.app import main

__all__ = ["main"]
