"""Ctrl-C outside the main thread, and in the middle of a print."""

import signal
import threading

from fednode.cli.signals import stop_on_interrupt
from fednode.observer import Observer, StopFlag


def test_in_another_thread_nothing_changes():
    before, seen = signal.getsignal(signal.SIGINT), []

    def elsewhere():
        with stop_on_interrupt(StopFlag(), print):
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert seen == [before]


def test_a_notice_that_cannot_be_printed_does_not_reach_the_run():
    def refuse(_text):
        raise RuntimeError("reentrant call inside BufferedWriter")

    stop = StopFlag()
    with stop_on_interrupt(stop, refuse):
        signal.raise_signal(signal.SIGINT)
    assert stop.raised


def test_a_flag_once_raised_stays_raised():
    stop = StopFlag()
    assert not stop.raised
    stop.stop()
    stop.stop()
    assert stop.raised


def test_a_silent_observer_says_nothing(capsys, tmp_path):
    observer = Observer()
    observer.writing_to(tmp_path)
    observer.started(3)
    observer.phase("x")
    observer.finished()
    assert capsys.readouterr() == ("", "")
