"""A run as it is watched: a bar on a terminal, plain lines everywhere else."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from fednode.assemble.lines import LineObserver, describe
from fednode.errors import visible
from fednode.observer import RoundProgress


def watcher_for(console: Console) -> LineObserver:
    """The watcher that suits where the output goes."""
    if console.is_terminal:
        return BarWatcher(console)
    return LineObserver(lambda text: _print(console, text))


@contextmanager
def watching(watcher: LineObserver) -> Iterator[LineObserver]:
    """Close the watcher after the block, however that ends."""
    try:
        yield watcher
    finally:
        watcher.finished()


def _print(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)


class _Bar(Progress):
    """A bar over whole rounds; below it the current step, and the figures of the last round."""

    step = ""
    figures = ""

    def get_renderables(self) -> Iterable[RenderableType]:
        """The bar's line, then the two texts: they wrap where the terminal is narrow."""
        yield self.make_tasks_table(self.tasks)
        for text in filter(None, (self.step, self.figures)):
            yield Text("  " + visible(text))


class BarWatcher(LineObserver):
    """A bar that moves with the rounds; warnings and failed rounds stay above it as lines."""

    def __init__(self, console: Console) -> None:
        super().__init__(lambda text: _print(console, text))
        columns = (
            SpinnerColumn("line", finished_text=" "),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[rounds]}"),
            TimeElapsedColumn(),
        )
        self._bar = _Bar(*columns, console=console, expand=True)
        self._task: TaskID = self._bar.add_task("", total=None, rounds="")
        self._bar.start()

    def started(self, rounds: int) -> None:
        """Give the bar its length."""
        self._bar.update(self._task, total=rounds, rounds=f"0/{rounds} rounds")

    def phase(self, text: str) -> None:
        """Show the step; a warning stays as a line."""
        if text.startswith("warning"):
            self.say(text)
        else:
            self._bar.step = text

    def progress(self, step: str, done: int, total: int) -> None:
        """Show how far the step is."""
        self._bar.step = f"{step}: {done} of {total}"

    def round_done(self, progress: RoundProgress) -> None:
        """Move the bar and show the round's figures; a failed round also leaves a line."""
        if progress.reason is not None:
            self.say(f"round {progress.round} failed: {progress.reason}")
        self._bar.figures = describe(progress)
        rounds = f"{progress.round}/{progress.rounds} rounds"
        self._bar.update(self._task, completed=progress.round, total=progress.rounds, rounds=rounds)

    def finished(self) -> None:
        """Stop the bar where it is; harmless when repeated."""
        self._bar.step = ""
        self._bar.stop()
