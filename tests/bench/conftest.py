"""A session whose jobs are answered at once, by a function of the job."""

import pytest
from kit.clocks import FakeClock

from benchmarks.harness.suite import BenchSession


class FakeProcesses:
    def __init__(self, answer):
        self.answer, self.jobs, self.batches = answer, [], []

    def alone(self, job):
        self.jobs.append(job)
        return self.answer(job)

    def together(self, jobs):
        self.batches.append(list(jobs))
        return [self.answer(job) for job in jobs]


@pytest.fixture
def session():
    """Make a session of a function from job to answer; `said` are the lines it was given."""

    def make(answer):
        said = []
        made = BenchSession(said.append, FakeProcesses(answer), FakeClock())
        return made, said

    return make
