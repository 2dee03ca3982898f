"""The second look: what failed runs once more, alone, and the gate stays open for a few tests that pass then."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.levels import flaky
from tests.levels.outcome import Outcome
from tests.levels.steps import Failed
from tests.levels.table import Level

ROOT = Path(__file__).parent.parent.parent
LIMIT_S = 600.0


def second_look(outcomes: Sequence[Outcome]) -> None:
    """Clear the levels whose failures are few and do not come again; these are put on the list of flaky tests."""
    failed = [(outcome, test) for outcome in outcomes for test in outcome.failed]
    if not 0 < len(failed) <= flaky.AT_MOST:
        return
    print(f"\n== a second look at {len(failed)} that failed, each alone", flush=True)
    listed = flaky.known()
    entries = [entry for outcome, test in failed if (entry := _look(outcome.level, test))]
    flaky.add(entries)
    names = [test.name for _, test in failed]
    reason = flaky.shut(names, sorted({*names} - {entry.test for entry in entries}), listed)
    for outcome, _ in failed:
        outcome.trouble = reason or ""


def _look(level: Level, test: Failed) -> flaky.Flaky | None:
    """What goes on the list, or None when it failed again."""
    status, said = _run(level, test)
    if status:
        print(f"   failed again: {test.name}\n{said}", flush=True)
        return None
    entry = flaky.flaky(test.name, level.name, test.output, said)
    print(f"   FLAKY: {test.name} passed; load {entry.load}; first it said:\n{entry.first}", flush=True)
    return entry


def _run(level: Level, test: Failed) -> tuple[int, str]:
    environ = {**os.environ, **level.environ}
    try:
        done = subprocess.run(
            test.again, cwd=ROOT, env=environ, capture_output=True, timeout=LIMIT_S, check=False, text=True
        )
    except subprocess.TimeoutExpired:
        return 1, f"stood still for {LIMIT_S:.0f} s"
    return done.returncode, done.stdout + done.stderr
