"""What a level runs: a plain command, a run of pytest, the Rust or the Go tests; and how one failed test runs again."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

Command = tuple[str, ...]
# See `Pytest.first_owner`; read where the product is started.
FIRST_OWNER = "ROLLBOX_TEST_FIRST_OWNER"


@dataclass(frozen=True)
class Failed:
    """A test that failed.

    Attributes:
        name: of the test, as its runner takes it.
        again: the command that runs this test alone.
        output: what it said.
    """

    name: str
    again: Command
    output: str


@dataclass
class Report:
    """What a step said of its tests."""

    failed: list[Failed] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    passed: int = 0


class Step(Protocol):
    """One command of a level."""

    def command(self, record: Path) -> Command:
        """The command; it may write what its tests did to `record`."""
        ...

    def report(self, record: Path) -> Report:
        """What the tests did, from `record`; nothing where the command runs no single tests."""
        ...


@dataclass(frozen=True)
class Plain:
    """A command that either works or fails."""

    words: Command

    def command(self, record: Path) -> Command:
        """See ``Step``."""
        return self.words

    def report(self, record: Path) -> Report:
        """See ``Step``."""
        return Report()


@dataclass(frozen=True)
class Pytest:
    """A run of pytest.

    Attributes:
        paths: below `tests/`.
        marks: an expression of markers (`-m`).
        workers: processes that share the tests; 0: none but pytest's own.
        first_owner: which of the owners of a cluster the first of these processes is; the others are those behind it.
        first: files that begin before all others: those that take longest.
    """

    paths: tuple[str, ...]
    marks: str = ""
    workers: int = 0
    first_owner: int = 0
    first: tuple[str, ...] = ()

    def command(self, record: Path) -> Command:
        """See ``Step``."""
        # A file stays with one process: its tests share sandboxes. Files begin in their order here: xdist's own choice,
        # by number of tests, has the few that wait for minutes begin last, and then one process runs alone.
        spread = ("-n", str(self.workers), "--dist", "loadfile", "--no-loadscope-reorder") if self.workers else ()
        chosen = ("-m", self.marks) if self.marks else ()
        owner = ("env", f"{FIRST_OWNER}={self.first_owner}") if self.first_owner else ()
        words = (f"--record={record}", *(f"--first=tests/{path}" for path in self.first), *spread, *chosen)
        return (*owner, *pytest_command(), *words, *(f"tests/{path}" for path in self.paths))

    def report(self, record: Path) -> Report:
        """See ``Step``."""
        found = Report()
        failed: dict[str, str] = {}
        for test in _lines(record):
            match test["outcome"]:
                case "failed":
                    failed[test["name"]] = failed.get(test["name"], "") + test["output"]
                case "skipped":
                    found.skipped.append(f"{test['name']}: {test['output']}")
                case _:
                    found.passed += 1
        found.failed = [Failed(name, (*pytest_command(), name), output) for name, output in failed.items()]
        return found


@dataclass(frozen=True)
class Rust:
    """The tests of the Rust workspace."""

    def command(self, record: Path) -> Command:
        """See ``Step``."""
        return (sys.executable, "-m", "tests.levels.rust", str(record))

    def report(self, record: Path) -> Report:
        """See ``Step``."""
        return _compiled(record, "tests.levels.rust", "binary")


@dataclass(frozen=True)
class Go:
    """Format, vet and tests of the Go module."""

    def command(self, record: Path) -> Command:
        """See ``Step``."""
        return (sys.executable, "-m", "tests.levels.go", str(record))

    def report(self, record: Path) -> Report:
        """See ``Step``."""
        return _compiled(record, "tests.levels.go", "package")


@dataclass(frozen=True)
class Beside:
    """Steps that run at the same time; none of them may need what another one takes away."""

    steps: tuple[Step, ...]


def pytest_command() -> Command:
    """pytest, telling what `record` reads, and on a cluster which test made which pods."""
    plugins = (word for name in ("record", "pods", "order") for word in ("-p", f"tests.levels.{name}"))
    return (sys.executable, "-m", "pytest", "-q", "--durations=8", *plugins)


def _compiled(record: Path, runner: str, place: str) -> Report:
    """The report of a runner of compiled tests, whose records name a test and the place that it is in."""
    found = Report()
    for test in _lines(record):
        if test["outcome"] == "failed":
            again = (sys.executable, "-m", runner, "--only", test[place], test["name"])
            found.failed.append(Failed(test["name"], again, test["output"]))
        elif test["outcome"] == "skipped":
            found.skipped.append(test["name"])
        else:
            found.passed += 1
    return found


def _lines(record: Path) -> Iterable[dict[str, str]]:
    """The records, as far as they were written whole: a run that was killed leaves half a line."""
    if not record.is_file():
        return
    for line in record.read_text().splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            return
