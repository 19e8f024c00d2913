"""HTML that cannot be forgotten to escape: whatever is not `Markup` is text."""

import html
import re
from collections.abc import Iterable, Sequence

from fednode.reports.figures import printable

_EXPONENT = re.compile(r"\b\d[\d.]*e-\d+\b")


class Markup(str):
    """A string that is HTML already. Only `tag`, `join` and a plot make one."""

    __slots__ = ()


def escape(text: str) -> Markup:
    """`text` as HTML, unless it is `Markup`; characters that do not print become a visible mark."""
    return text if isinstance(text, Markup) else Markup(html.escape(printable(text), quote=True))


def whole(text: str) -> Markup:
    """`text` as HTML whose numbers with an exponent are not broken at the end of a line: 1e-5 must not read as 1e."""
    return Markup(_EXPONENT.sub(r'<span class="whole">\g<0></span>', escape(text)))


def join(parts: Iterable[str], between: str = "") -> Markup:
    """The parts in a row, each escaped."""
    return Markup(escape(between).join(escape(part) for part in parts))


def tag(name: str, *children: str, **attributes: str) -> Markup:
    """An element. Attribute names are written with `_` for `-`, and with a `_` at the end where Python has the word."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"' for key, value in attributes.items()
    )
    return Markup(f"<{name}{written}>{join(children)}</{name}>")


def facts(rows: Iterable[tuple[str, str]]) -> Markup:
    """A table of two columns: what, and its value."""
    lines = (tag("tr", tag("th", what, scope="row"), tag("td", whole(value))) for what, value in rows)
    return tag("table", tag("tbody", *lines), class_="facts")


def grid(head: Sequence[str], rows: Iterable[Sequence[str]], style: str = "grid") -> Markup:
    """A table with a head; on a narrow screen each row becomes a card whose lines carry the column's name."""
    titles = tag("thead", tag("tr", *(tag("th", title, scope="col") for title in head)))
    lines = (
        tag("tr", *(tag("td", cell, data_label=title) for title, cell in zip(head, row, strict=True))) for row in rows
    )
    return tag("table", titles, tag("tbody", *lines), class_=style)


def bullets(items: Iterable[str], kind: str = "ul") -> Markup:
    """A list."""
    return tag(kind, *(tag("li", item) for item in items))
