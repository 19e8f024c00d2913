"""The statement and `report.html`, made from the Jinja2 templates beside this file.

Every string of the record is escaped, and characters that do not print become a visible mark.
"""

import json
import math
import re
from base64 import b64encode
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING

from fednode.reports import figures
from fednode.reports.plots import plots_of
from fednode.reports.run_record import RunRecord

if TYPE_CHECKING:
    from jinja2 import Environment
    from jinja2.nodes import EvalContext

_SHEET = re.compile(r"<style[^>]*>(.*?)</style>", re.DOTALL)
_EXPONENT = re.compile(r"\b\d[\d.]*e-\d+\b")


def statement(record: RunRecord) -> str:
    """What is signed, on one line: what ran, what it spent, for which unit, and on which assumptions."""
    return " ".join(_paragraphs(record))


def _paragraphs(record: RunRecord) -> list[str]:
    fewest = min((len(entry.survivors) for entry in record.charged), default=0)
    text = environment().get_template("statement.txt").render(record=record, fewest_survivors=fewest)
    return [" ".join(paragraph.split()) for paragraph in text.strip().split("\n\n")]


def render_html(record: RunRecord) -> bytes:
    """One page in UTF-8 that loads nothing and runs nothing, by its own policy too. Equal records give equal bytes."""
    page = environment().get_template("report.html")
    text = page.render(record=record, paragraphs=_paragraphs(record), plots=plots_of(record))
    return _guarded(text.lstrip()).encode()


def _guarded(text: str) -> str:
    """The page with a policy that allows its style sheet alone."""
    sheet = _SHEET.findall(text)[0]
    digest = b64encode(sha256(sheet.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return text.replace("<head>", f'<head>\n<meta http-equiv="Content-Security-Policy" content="{policy}">', 1)


@cache
def environment() -> "Environment":
    """The templates beside this file, with the formats that they use."""
    # imported here: commands that make no report start faster without it
    from jinja2 import Environment, PackageLoader, StrictUndefined, pass_eval_context, select_autoescape

    made = Environment(
        loader=PackageLoader("fednode.reports"),
        autoescape=select_autoescape(["html"]),
        undefined=StrictUndefined,
        finalize=pass_eval_context(_shown),
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.do"],
    )
    made.globals["looser"] = figures.LOOSER
    names = ("bound", "duration", "left", "moment", "number", "percent", "percent_bound", "plural", "printable",
             "reasons", "row", "maybe", "size")  # fmt: skip
    made.filters.update({name: getattr(figures, name) for name in names})
    # YAML 1.1 reads 1e-05 as text, and 1.0e-05 as a number
    made.filters["decimal"] = lambda value: repr(value) if "." in repr(value) else repr(value).replace("e", ".0e")
    made.filters.update(css=_css, exp=math.exp, quoted=_quoted, setting=_setting)
    return made


def _shown(context: "EvalContext", value: object) -> object:
    """In HTML, text is escaped here, and a number with an exponent is kept on one line: 1e-5 must not read as 1e."""
    if not context.autoescape or not isinstance(value, str) or hasattr(value, "__html__"):
        return value
    from markupsafe import Markup, escape

    whole = _EXPONENT.sub(r'<span class="whole">\g<0></span>', str(escape(figures.printable(value))))
    return Markup(whole)  # noqa: S704 # nosec B704 # it was escaped in the line above


def _css(text: str) -> str:
    """`text` as a CSS string; what is not plain is escaped, so that it ends neither the string nor the sheet."""
    return "".join(
        sign if sign.isascii() and sign.isalnum() else f"\\{ord(sign):x} " for sign in figures.printable(text)
    )


def _quoted(text: str) -> str:
    """`text` as a double-quoted YAML string on one line."""
    return json.dumps(" ".join(figures.plain(figures.printable(text)).split()))


def _setting(value: object) -> str:
    """One setting as text: a table in one line with its keys sorted, floats to 8 digits."""
    if value is None:
        return "not set"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_setting(value[key])}" for key in sorted(value)) or "none"
    if isinstance(value, list | tuple):
        return ", ".join(map(_setting, value)) or "none"
    return figures.number(value, 8) if isinstance(value, float) else str(value)
