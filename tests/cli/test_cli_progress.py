"""What a watcher shows."""

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.assembly import some_progress
from rich.console import Console

from fednode.cli.progress import BarWatcher, PlainWatcher, describe, watcher_for


def watched(terminal):
    screen = io.StringIO()
    watcher = watcher_for(Console(file=screen, force_terminal=terminal, width=160, color_system=None))
    with watcher:
        watcher.started(20, ("reading the data",))
        watcher.phase("making keys")
        watcher.round_done(some_progress(round=1, accuracy=None))
        watcher.round_done(some_progress(round=2, reason="box is bad"))
        watcher.say("[b]as it stands[/b]")
    watcher.finished()
    return screen.getvalue()


def test_a_terminal_gets_a_bar_with_the_figures_of_the_last_round():
    shown = watched(terminal=True)
    assert "round 2/20" in shown and "epsilon 2.345 of 8" in shown and "survivors 19/20" in shown
    assert "round 2 failed: box is bad" in shown


def test_a_pipe_gets_lines_and_no_control_characters():
    shown = watched(terminal=False)
    assert shown.splitlines()[-3:] == [
        "round 1/20  survivors 19/20  accuracy not measured  epsilon 2.345 of 8  1.23 MB a client  1.2 s",
        "round 2/20  survivors 19/20  accuracy 81.2 %  epsilon 2.345 of 8  1.23 MB a client  1.2 s  failed: box is bad",
        "[b]as it stands[/b]",
    ]
    assert "\x1b" not in shown and "\r" not in shown


def test_the_console_decides_which_watcher():
    assert isinstance(watcher_for(Console(file=io.StringIO(), force_terminal=True)), BarWatcher)
    assert isinstance(watcher_for(Console(file=io.StringIO())), PlainWatcher)


def test_both_watchers_know_the_folder_they_were_told(tmp_path):
    for watcher in (BarWatcher(Console(file=io.StringIO())), PlainWatcher(Console(file=io.StringIO()))):
        assert watcher.folder is None
        watcher.writing_to(tmp_path)
        assert watcher.folder == tmp_path


def test_sizes_are_written_as_in_the_report_with_plain_spaces():
    assert "  194.1 kB a client" in describe(some_progress(bytes_up=194_080))
    assert "\N{NO-BREAK SPACE}" not in describe(some_progress())


def test_a_round_in_one_line():
    assert describe(some_progress()) == "survivors 19/20  accuracy 81.2 %  epsilon 2.345 of 8  1.23 MB a client"


@pytest.mark.parametrize(
    ("epsilon", "budget", "words"),
    [
        (0.00046123, 0.001, "epsilon 4.613e-4 of 0.001"),
        (7.26461, 8.0, "epsilon 7.265 of 8"),
        (2.2, 8.0, "epsilon 2.200 of 8"),
        (0.0, 8.0, "epsilon 0 of 8"),
    ],
)
def test_epsilon_is_never_shown_as_less_than_it_is(epsilon, budget, words):
    assert f"  {words}  " in describe(some_progress(epsilon=epsilon, budget=budget))


@given(st.floats(1e-9, 1e6))
@settings(max_examples=100, deadline=None)
def test_epsilon_is_rounded_up_and_by_little(epsilon):
    shown = float(describe(some_progress(epsilon=epsilon)).split("epsilon ")[1].split(" of")[0].replace(",", ""))
    assert epsilon <= shown <= 1.0011 * epsilon


def test_one_round_is_one_round():
    screen = io.StringIO()
    PlainWatcher(Console(file=screen)).started(1, ())
    assert screen.getvalue() == "1 round ahead\n"
