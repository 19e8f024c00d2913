"""Ctrl-C outside the main thread and in the middle of a print; SIGTERM and SIGHUP end a run after its round."""

import os
import signal
import threading

import pytest

from fednode.cli.signals import stop_on_interrupt
from fednode.observer import StopFlag


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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_ending_signals_are_a_wish_to_stop_and_the_old_handler_comes_back(number):
    before, stop, said = signal.getsignal(number), StopFlag(), []
    with stop_on_interrupt(stop, said.append):
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)
        assert stop.raised
    assert signal.getsignal(number) == before and said == []
