"""Guess what was meant."""

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(word: str, valid: Iterable[str]) -> str:
    """The valid name most like `word`; `valid` must not be empty."""
    names = list(valid)
    found = get_close_matches(word, names, n=1, cutoff=0.0)
    return found[0] if found else names[0]
