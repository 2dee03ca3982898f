"""The list of tests that failed in a gate and passed alone, and what follows of it.

Such a test is a bug to be found, in the test or in what it tests: the list is checked in, and empty when a piece of
work ends.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import yaml

LIST = Path(__file__).parent.parent / "flaky.yaml"
AT_MOST = 3
HEAD = (
    "# Tests that failed in a gate and passed when they ran again, alone; `make hunt TEST=NAME` looks for the cause.\n"
)
KEPT_CHARACTERS = 4_000


@dataclass(frozen=True)
class Flaky:
    """A test that failed, then passed.

    Attributes:
        test: its name.
        level: in which it failed.
        at: when, UTC.
        load: of the machine when it failed: the averages of 1, 5 and 15 minutes.
        first: what it said when it failed.
        second: what it said when it passed.
    """

    test: str
    level: str
    at: str
    load: str
    first: str
    second: str


def flaky(test: str, level: str, first: str, second: str) -> Flaky:
    """An entry for now."""
    load = " ".join(f"{value:.1f}" for value in os.getloadavg())
    at = datetime.now(UTC).isoformat(timespec="seconds")
    return Flaky(test, level, at, load, first[-KEPT_CHARACTERS:], second[-KEPT_CHARACTERS:])


def known(path: Path | None = None) -> frozenset[str]:
    """The names on the list."""
    return frozenset(entry["test"] for entry in _read(path))


def add(entries: Sequence[Flaky], path: Path | None = None) -> None:
    """Put these on the list."""
    if not entries:
        return
    whole = [*_read(path), *(asdict(entry) for entry in entries)]
    (path or LIST).write_text(HEAD + yaml.safe_dump(whole, sort_keys=False, width=120))


def shut(failed: Sequence[str], again: Sequence[str], listed: frozenset[str]) -> str | None:
    """Why the gate is shut after a second look, or None.

    Args:
        failed: the tests that failed.
        again: those of them that failed again, alone.
        listed: the tests that were on the list before.
    """
    if again:
        return f"failed twice: {', '.join(again)}"
    if repeated := [name for name in failed if name in listed]:
        return f"on the list of flaky tests already: {', '.join(repeated)}"
    if len(failed) > AT_MOST:
        return f"{len(failed)} flaky tests, and at most {AT_MOST} are let through"
    return None


def _read(path: Path | None) -> list[dict[str, str]]:
    path = path or LIST
    return (yaml.safe_load(path.read_text()) if path.is_file() else None) or []
