"""The plots: the record's numbers, the page's colours, the same bytes every time."""

import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
from kit.sample_record import sample_record

from fednode.reports import plots

DRAWERS = (plots.accuracy_plot, plots.epsilon_plot, plots.noise_plot, plots.survivors_plot)


def parsed(svg: str) -> ET.Element:
    return ET.fromstring(svg)  # noqa: S314 our own output


def words_of(svg: str) -> str:
    return " ".join(parsed(svg).itertext())


@pytest.mark.parametrize("draw", DRAWERS)
def test_a_plot_is_one_svg_that_follows_the_theme(draw: plots.Plot) -> None:
    svg = draw(sample_record())
    assert draw(sample_record()) == svg, "the same bytes every time"
    root = parsed(svg)
    assert root.tag == "svg" and root.get("width") is None
    assert "var(--ink)" in svg and "var(--line)" in svg
    assert re.findall(r"#[0-9a-f]{6}\b", svg) in ([], ["#ffffff"])
    assert "<!--" not in svg


def test_labels_say_what_is_drawn() -> None:
    words = {draw: words_of(draw(sample_record())) for draw in DRAWERS}
    assert "accuracy, %" in words[plots.accuracy_plot]
    assert all(word in words[plots.epsilon_plot] for word in ("limit", "charged", "Renyi bound"))
    assert all(word in words[plots.noise_plot] for word in ("planned", "added"))
    assert all(word in words[plots.survivors_plot] for word in ("floor", "released", "failed"))
    smooth = replace(sample_record(), rounds=sample_record().rounds[:3])
    assert "failed" not in words_of(plots.survivors_plot(smooth))


@pytest.mark.parametrize("draw", DRAWERS)
def test_no_round_gives_no_plot_and_one_round_gives_one(draw: plots.Plot) -> None:
    record = sample_record()
    assert draw(replace(record, rounds=())) == ""
    assert draw(replace(record, rounds=record.rounds[:1])).startswith("<svg")


def test_importing_the_reports_does_not_import_matplotlib() -> None:
    code = "import sys, fednode.reports; print(sorted({'matplotlib', 'pydantic', 'torch', 'flwr'} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
