"""A process that is asked to end (SIGTERM, SIGHUP) ends its round as after Ctrl-C, and goes on asking nobody."""

import os
import signal

import pytest

from fednode.cli.signals import stop_on_interrupt
from fednode.observer import StopFlag


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_ending_signals_are_a_wish_to_stop_and_the_old_handler_comes_back(number):
    before, stop, said = signal.getsignal(number), StopFlag(), []
    with stop_on_interrupt(stop, said.append):
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)
        assert stop.raised
    assert signal.getsignal(number) == before and said == []
