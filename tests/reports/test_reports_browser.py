"""The page in a real browser: on a screen, on a phone and on paper. Skipped where Chromium is not installed."""

import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from kit.sample_record import sample_record

from fednode.reports import render_html

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

pytestmark = [pytest.mark.thorough, pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")]

# the page has a policy of its own, under which no script runs: a frame around it measures
FRAME = """<iframe id="page" src="report.html" style="border:0; width:WIDTHpx; height:3000px"></iframe>
<pre id="seen"></pre>
<script>
window.addEventListener("load", () => {
  const inner = document.getElementById("page").contentDocument, width = inner.documentElement.clientWidth;
  const wide = [...inner.querySelectorAll("body *")].filter(one => one.getBoundingClientRect().right > width + 1);
  const look = part => inner.defaultView.getComputedStyle(inner.querySelector(part));
  document.getElementById("seen").textContent = JSON.stringify({
    width, scrolls: inner.documentElement.scrollWidth, wide: wide.map(one => one.tagName + "." + one.className),
    five: look(".five").display, cards: look(".cards").gridTemplateColumns.split(" ").length,
    fiveEnds: inner.querySelector(".five").getBoundingClientRect().bottom,
  });
});
</script>
"""


def chromium(folder: Path, *arguments: str) -> str:
    command = [
        str(CHROMIUM),
        "--headless",
        "--no-sandbox",
        "--hide-scrollbars",
        f"--user-data-dir={folder / 'profile'}",
    ]
    command += ["--host-resolver-rules=MAP * ~NOTFOUND", "--allow-file-access-from-files", *arguments]
    done = subprocess.run(command, capture_output=True, timeout=120, check=True)
    return done.stdout.decode()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A deployment's page with a name that fits no line, signatures and all."""
    place, record = tmp_path_factory.mktemp("browser"), sample_record()
    rounds = (replace(record.rounds[0], lost=("a-client-with-a-name-of-" + 60 * "x",)), *record.rounds[1:])
    trust = replace(record.trust, enrolment="each member made its own keys")
    (place / "report.html").write_bytes(render_html(replace(record, rounds=rounds, trust=trust)))
    return place


@pytest.mark.parametrize(("width", "five", "cards"), [(1280, "grid", 3), (400, "block", 2)])
def test_nothing_is_wider_than_the_screen(folder: Path, width: int, five: str, cards: int) -> None:
    frame = folder / f"frame-{width}.html"
    frame.write_text(FRAME.replace("WIDTH", str(width)))
    dom = chromium(folder, "--window-size=1400,1000", "--dump-dom", frame.as_uri())
    found = re.search(r'<pre id="seen">(.*?)</pre>', dom, re.DOTALL)
    assert found is not None
    seen = json.loads(found[1].replace("&gt;", ">"))
    assert (seen["width"], seen["scrolls"], seen["wide"]) == (width, width, [])
    # its own style sheet passes its own policy
    assert (seen["five"], seen["cards"]) == (five, cards)
    assert seen["fiveEnds"] < 1000


@pytest.mark.skipif(shutil.which("pdftotext") is None, reason="poppler-utils is not installed")
def test_every_sheet_of_paper_names_the_run_the_head_and_its_page(folder: Path) -> None:
    paper, record = folder / "report.pdf", sample_record()
    chromium(folder, "--no-pdf-header-footer", f"--print-to-pdf={paper}", (folder / "report.html").as_uri())
    text = subprocess.run(["pdftotext", "-layout", paper, "-"], capture_output=True, check=True).stdout.decode()
    pages = text.removesuffix("\f").split("\f")
    assert 4 < len(pages) < 15
    for number, page in enumerate(pages, start=1):
        assert f"Page {number} of {len(pages)}" in page
        assert f"Run {record.run_id}" in page and f"Ledger head {record.trust.ledger_head}" in page
    assert all(word in pages[0] for word in ("Guarantee", "For whom", "Budget left", "Kind", "Who signs"))
    assert sum(page.count("I confirm that") for page in pages) == 5
