"""What humaneval.py shows and writes: live progress, a table, a plot of latencies and report.json."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from latencies import percentiles, plot
from mutants import Sample
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table


@dataclass(frozen=True)
class Graded:
    """A sample's result: passed, failed, crashed, deadline, oom_killed, ..., or masked when the platform failed."""

    sample: Sample
    outcome: str
    end: str = ""
    create_ms: float = 0.0
    exec_ms: float = 0.0
    detail: str = ""


@dataclass
class Report:
    """Collects grades while its `with` shows progress."""

    total: int
    grades: list[Graded] = field(default_factory=list)
    left_behind: int = 0
    wall_s: float = 0.0
    console: Console = field(default_factory=Console)

    def __enter__(self) -> Self:
        text = TextColumn("{task.description}")
        self._progress = Progress(text, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=self.console)
        self._bar = self._progress.add_task("grading", total=self.total)
        self._started = time.perf_counter()
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.wall_s = time.perf_counter() - self._started
        self._progress.stop()

    def add(self, graded: Graded) -> None:
        """Count one grade and move the bar."""
        self.grades.append(graded)
        wrong = sum(not _right(grade) for grade in self.grades)
        shown = "grading" if not wrong else f"grading, {wrong} not as expected"
        self._progress.update(self._bar, advance=1, description=shown)

    def as_expected(self) -> bool:
        """Whether every sample ended as it must and nothing is left behind."""
        return len(self.grades) == self.total and all(map(_right, self.grades)) and self.left_behind == 0

    def numbers(self) -> dict[str, object]:
        """Return the report as JSON; latencies in milliseconds over all samples that were not masked."""
        ran = [grade for grade in self.grades if grade.end]
        return {
            "problems": len({grade.sample.name for grade in self.grades if grade.sample.kind == "canonical"}),
            "canonical_passed": self._count("canonical"),
            "mutants_failed": self._count("mutant"),
            "ends": dict(Counter(grade.end for grade in ran)),
            "masked": sum(grade.outcome == "masked" for grade in self.grades),
            "left_behind": self.left_behind,
            "create_ms": percentiles([grade.create_ms for grade in ran]),
            "exec_ms": percentiles([grade.exec_ms for grade in ran]),
            "wall_s": round(self.wall_s, 2),
        }

    def write(self, folder: Path) -> None:
        """Print the table and unexpected outcomes; write report.json and latency.png into the folder."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "report.json").write_text(json.dumps(self.numbers(), indent=2) + "\n")
        plot(self.grades, self.wall_s, folder / "latency.png")
        self.console.print(self._table())
        for grade in self.grades:
            if not _right(grade):
                told = f"{grade.sample.name} {grade.sample.kind}: {grade.outcome}, not {grade.sample.expected}"
                self.console.print(told, grade.detail, markup=False)
        self.console.print(f"written: {folder / 'report.json'}, {folder / 'latency.png'}", markup=False)

    def _count(self, kind: str) -> int:
        return sum(grade.sample.kind == kind and _right(grade) for grade in self.grades)

    def _table(self) -> Table:
        numbers = self.numbers()
        table = Table("HumanEval", "", title_justify="left")
        table.add_row("canonical solutions that passed", f"{numbers['canonical_passed']} of {numbers['problems']}")
        table.add_row("mutants that failed", f"{numbers['mutants_failed']} of {numbers['problems']}")
        for cause, count in sorted(Counter(grade.end for grade in self.grades if grade.end).items()):
            table.add_row(f"ended as {cause}", str(count))
        table.add_row("masked: the platform failed", str(numbers["masked"]))
        table.add_row("sandboxes left behind", str(self.left_behind))
        for name in ("create_ms", "exec_ms"):
            spread = percentiles([getattr(grade, name) for grade in self.grades if grade.end])
            table.add_row(f"{name} p50 / p95 / p99", " / ".join(f"{value:.1f}" for value in spread.values()))
        table.add_row("wall time", f"{self.wall_s:.1f} s for {len(self.grades)} sandboxes")
        return table


def _right(grade: Graded) -> bool:
    return grade.outcome == grade.sample.expected
