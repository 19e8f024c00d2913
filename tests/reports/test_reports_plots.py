"""The plots: the record's numbers at their places, in the page's colours."""

import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
from kit.sample_record import sample_record, sample_round

from fednode.reports.page import environment
from fednode.reports.plots import BOTTOM, LEFT, RIGHT, TOP, Plot, plots_of

FOUR = range(4)


def drawn(plot: Plot) -> ET.Element:
    svg = environment().get_template("plot.html").module.draw(plot)  # type: ignore[attr-defined]
    return ET.fromstring(svg)  # noqa: S314 our own output


def words(plot: Plot) -> str:
    return " ".join("".join(drawn(plot).itertext()).split())


@pytest.mark.parametrize("number", FOUR)
def test_a_plot_is_one_svg_in_the_colours_of_the_page(number: int) -> None:
    root = drawn(plots_of(sample_record())[number])
    assert root.tag == "svg" and root.get("width") is None
    assert not any({"style", "fill", "stroke"} & set(part.attrib) for part in root.iter())
    assert any("first" in part.get("class", "") for part in root.iter())


@pytest.mark.parametrize("number", FOUR)
def test_everything_is_inside_the_drawing(number: int) -> None:
    plot = plots_of(sample_record())[number]
    for series in plot.series:
        for at, value in series.points:
            assert plot.x(at) - plot.width / 2 > LEFT and plot.x(at) + plot.width / 2 < RIGHT
            assert TOP <= plot.y(value) <= BOTTOM
    assert all(TOP <= plot.y(level) <= BOTTOM for level in plot.levels) and 3 <= len(plot.levels) <= 7


def test_the_numbers_are_the_records() -> None:
    record = sample_record()
    accuracy, spent, noise, survivors = plots_of(record)
    points = {one.label: dict(one.points) for plot in (accuracy, spent, noise, survivors) for one in plot.series}
    assert points["accuracy"] == {one.round: 100 * one.accuracy for one in record.rounds if one.accuracy is not None}
    assert points["charged"] == {one.round: one.epsilon_after for one in record.rounds}
    assert points["added"] == {one.round: one.noise_added for one in record.released}
    assert set(points["failed"]) == {9, 16} and points["failed"][9] == 13 and points["released"][5] == 16
    assert points["limit"] == {1: 8.0} and points["floor"] == {1: 15.0}
    # the axis goes up, and the limit is where epsilon 8 is
    assert spent.y(8.0) < spent.y(7.874) < spent.y(0.0) == BOTTOM
    level = next(part for part in drawn(spent).iter("path") if "level" in part.get("class", ""))
    assert f" {round(spent.y(8.0), 1)}H" in level.get("d", "")


def test_labels_say_what_is_drawn() -> None:
    found = [words(plot) for plot in plots_of(sample_record())]
    assert "accuracy, %" in found[0] and "charged" not in found[0]
    assert all(word in found[1] for word in ("limit", "charged", "Renyi bound"))
    assert all(word in found[2] for word in ("planned", "added"))
    assert all(word in found[3] for word in ("floor", "released", "failed"))
    smooth = replace(sample_record(), rounds=sample_record().rounds[:3])
    assert "failed" not in words(plots_of(smooth)[3])


@pytest.mark.parametrize(("last", "named"), [(1, [1]), (7, list(range(1, 8))), (20, [5, 10, 15, 20]), (1000, 5)])
def test_the_axis_names_a_few_rounds(last: int, named: list[int] | int) -> None:
    rounds = tuple(sample_round(number, 1.0) for number in range(1, last + 1))
    found = plots_of(replace(sample_record(), rounds=rounds))[0].numbers
    assert (len(found) if isinstance(named, int) else found) == named


def test_no_round_gives_no_plot_and_one_round_gives_four() -> None:
    record = sample_record()
    assert [plot.drawn for plot in plots_of(replace(record, rounds=()))] == [False] * 4
    assert [plot.drawn for plot in plots_of(replace(record, rounds=record.rounds[:1]))] == [True] * 4
    assert all(re.fullmatch(r"No .*\.", plot.empty) for plot in plots_of(record))


def test_importing_the_reports_imports_nothing_heavy() -> None:
    heavy = "{'matplotlib', 'pydantic', 'torch', 'flwr', 'jinja2'}"
    code = f"import sys, fednode.reports; print(sorted({heavy} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
