"""Progress of a sweep: environment steps, their rate, time left and each method's return."""

import math
import sys
import time
from typing import TYPE_CHECKING, TextIO

from experiments.study.run import Evaluated, Plan

if TYPE_CHECKING:
    import polars as pl


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


def _methods(rows: "pl.DataFrame") -> list[tuple[str, float, float]]:
    """(method, mean return, mean weight) of the newest evaluation, in order of appearance."""
    import polars as pl

    weight = pl.col("entropy_weight").mean() if "entropy_weight" in rows.columns else pl.lit(float("nan"))
    table = rows.group_by("method", maintain_order=True).agg(
        pl.col("return_mean").fill_nan(None).mean().alias("mean"), weight.alias("weight")
    )
    return [(m, float("nan") if r is None else r, float("nan") if w is None else w) for m, r, w in table.rows()]


def _number(weight: float) -> str:
    """Nothing before the first update."""
    return "" if math.isnan(weight) else f"{weight:.3g}"


def _bracket(weight: float) -> str:
    return f" (weight {_number(weight)})" if _number(weight) else ""


class Progress:
    """A context manager: a live display on a terminal, plain lines elsewhere. Call `tick` after every evaluation."""

    def __init__(
        self, plan: Plan, num_runs: int, batches: int, title: str, quiet: bool = False, stream: TextIO | None = None
    ):
        self.stream, self.quiet = stream or sys.stdout, quiet
        self.plan, self.num_runs, self.batches, self.title = plan, num_runs, batches, title
        self.live = self.stream.isatty() and not quiet
        self._began = self._line_at = time.monotonic()
        self._work: int | None = None  # intervals done when the rate began (a resumed run does not start at 0)
        self._compiled = False  # the training step, too
        self._display = self._bar = self._task = None

    def __enter__(self) -> "Progress":
        if self.live:
            from rich.console import Console, Group
            from rich.live import Live
            from rich.progress import BarColumn, TextColumn
            from rich.progress import Progress as Bar

            self._bar = Bar(TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[note]}"))
            self._task = self._bar.add_task(self.title, total=self.batches * self.plan.evaluations, note="compiling")
            self._display = Live(Group(self._bar), console=Console(file=self.stream), refresh_per_second=4)
            self._display.start()
        else:
            self._print(f"{self.title}: compiling")
        return self

    def __exit__(self, *_: object) -> None:
        if self._display is not None:
            self._display.stop()

    def note(self, text: str) -> None:
        """A line that stays on the screen."""
        if self._display is not None:
            self._display.console.print(text)
        else:
            self._print(text)

    def tick(self, now: Evaluated) -> None:
        """Show an evaluation."""
        done = now.batch * self.plan.evaluations + now.number
        clock = time.monotonic()
        total = self.batches * self.plan.evaluations
        note = f"{100 * done / total:5.1f} %  step {now.number * self.plan.interval * self.plan.num_envs:,}"
        if self._work is None:  # after compiling the evaluation
            self._work, self._began = done, clock
        elapsed, worked = clock - self._began, done - self._work
        if worked:
            steps = worked * self.plan.interval * self.plan.num_envs * self.num_runs / self.batches  # of all runs
            note += f"  {steps / elapsed:,.0f} environment steps/s"
            if self._compiled:
                note += f"  {_clock((total - done) * elapsed / worked)} left"
            else:  # the training step was compiled in this interval; from here on only what will go on counts
                note += ", compiling counted"
                self._work, self._began, self._compiled = done, clock, True
        if self._display is not None:
            self._show(now, note, done)
        elif now.number == self.plan.evaluations or clock - self._line_at > 10.0:
            self._line_at = clock
            means = "  ".join(f"{m} {r:.2f}{_bracket(w)}" for m, r, w in _methods(now.rows)[:8])
            self._print(f"{note}  {means}")

    def _show(self, now: Evaluated, note: str, done: int) -> None:
        from rich.console import Group
        from rich.table import Table

        assert self._bar is not None
        assert self._task is not None
        assert self._display is not None
        self._bar.update(self._task, completed=done, note=note)
        table = Table("method", "return", "entropy weight", box=None)
        for method, mean, weight in _methods(now.rows):
            table.add_row(method, f"{mean:.2f}", _number(weight))
        self._display.update(Group(self._bar, table))

    def _print(self, text: str) -> None:
        if not self.quiet:
            print(text, file=self.stream, flush=True)
