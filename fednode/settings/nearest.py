"""Guess what was meant."""

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(word: str, valid: Iterable[str]) -> str | None:
    """The valid name most like `word`, or None where none is like it: a wild guess helps nobody."""
    found = get_close_matches(word, list(valid), n=1, cutoff=0.6)
    return found[0] if found else None


def guess(word: str, valid: Iterable[str]) -> str:
    """`; did you mean 'that'?`, or nothing where no name is like `word`."""
    found = nearest(word, valid)
    return "" if found is None else f"; did you mean {found!r}?"
