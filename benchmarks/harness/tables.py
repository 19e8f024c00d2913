"""Figures as people read them, and tables in Markdown that also read well on a terminal."""

from collections.abc import Sequence


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return `rows`, the headings first, as a table with its columns to the right; all rows are of one length."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [f"| {' | '.join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))} |" for row in rows]
    return [lines[0], "|" + "|".join("-" * (width + 1) + ":" for width in widths) + "|", *lines[1:]]


def readable(figure: float) -> str:
    """Return at least three digits, whole numbers as they are, no exponent."""
    if float(figure).is_integer() or abs(figure) >= 100:
        return f"{figure:,.0f}"
    places = 1 if abs(figure) >= 10 else 2 if abs(figure) >= 1 else 3
    return f"{figure:.{places}f}"
