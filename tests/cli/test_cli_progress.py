"""What a watcher shows."""

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.assembly import some_progress
from kit.clocks import FakeClock
from rich.console import Console

from fednode.assemble.lines import LineObserver, describe
from fednode.cli.progress import BarWatcher, watcher_for, watching


def watched(terminal, width=80):
    screen = io.StringIO()
    with watching(
        watcher_for(Console(file=screen, force_terminal=terminal, width=width, color_system=None))
    ) as watcher:
        watcher.started(20)
        watcher.phase("making keys")
        watcher.round_done(some_progress(round=1, accuracy=None))
        watcher.round_done(some_progress(round=2, reason="box is bad"))
        watcher.progress("round 3: updates", 4, 19)
        if terminal:
            watcher._bar.refresh()
        watcher.say("[b]as it stands[/b]")
    watcher.finished()
    return screen.getvalue()


@pytest.mark.parametrize("width", [60, 80, 160])
def test_a_terminal_gets_a_bar_its_length_the_time_and_the_figures_of_the_last_round(width):
    shown = " ".join(watched(terminal=True, width=width).split())
    for words in (
        "━━━━",
        "2/20 rounds 0:00:00",
        "epsilon 2.345 of 8",
        "1.23 MB a client",
        "round 2 failed: box is bad",
    ):
        assert words in shown
    assert "round 3: updates: 4 of 19" in shown and "…" not in shown


def test_a_pipe_gets_lines_and_no_control_characters():
    shown = watched(terminal=False)
    assert shown.splitlines()[-3:] == [
        "round 1/20  survivors 19/20  accuracy not measured  epsilon 2.345 of 8  1.23 MB a client  1.2 s",
        "round 2/20  survivors 19/20  accuracy 81.2 %  epsilon 2.345 of 8  1.23 MB a client  1.2 s  failed: box is bad",
        "[b]as it stands[/b]",
    ]
    assert "\x1b" not in shown and "\r" not in shown


def test_lines_say_how_far_a_step_is_after_five_quiet_seconds():
    lines, clock = [], FakeClock()
    observer = LineObserver(lines.append, clock)
    for done in range(1, 13):
        clock.sleep(1)
        observer.progress("making keys", done, 12)
    assert lines == ["making keys: 5 of 12", "making keys: 10 of 12"]


def test_the_console_decides_which_watcher():
    assert isinstance(watcher_for(Console(file=io.StringIO(), force_terminal=True)), BarWatcher)
    assert type(watcher_for(Console(file=io.StringIO()))) is LineObserver


def test_both_watchers_know_the_folder_they_were_given(tmp_path):
    for terminal in (True, False):
        with watching(watcher_for(Console(file=io.StringIO(), force_terminal=terminal))) as watcher:
            assert watcher.folder is None
            watcher.writing_to(tmp_path)
            assert watcher.folder == tmp_path


def test_sizes_are_written_as_in_the_report_with_plain_spaces():
    assert "  194.1 kB a client" in describe(some_progress(bytes_up=194_080))
    assert "\N{NO-BREAK SPACE}" not in describe(some_progress())


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
