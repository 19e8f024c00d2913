"""Whoever stops listening ends no run: the rounds that are charged have their report."""

from kit.smallrun import report_of, small_settings

from fednode.assemble import run
from fednode.observer import Observer, StopFlag


class FakeClosedPipe(Observer):
    def phase(self, text):
        raise BrokenPipeError(32, "Broken pipe")

    writing_to = started = round_done = phase

    def finished(self):
        raise BrokenPipeError(32, "Broken pipe")


def test_a_run_that_nobody_listens_to_is_whole(tmp_path):
    observer = FakeClosedPipe()
    result = run(small_settings(tmp_path), observer, StopFlag())
    assert result.error is None
    assert [entry["outcome"] for entry in report_of(result.folder)["rounds"]] == ["released", "released"]
