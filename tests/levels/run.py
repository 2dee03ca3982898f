"""Runs levels, one after the other: what they need, their steps, and at the end what takes it down again."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import IO

from tests.levels.outcome import Outcome
from tests.levels.pace import pace
from tests.levels.steps import Beside, Command, Step
from tests.levels.table import Level

ROOT = Path(__file__).parent.parent.parent
# A step that stands still is ended at so many times its level's budget.
STUCK = 4.0
TAKES_DOWN_S = 60.0


class Run:
    """One run of some levels.

    Args:
        levels: in their order.
        strict: whether a level that cannot run, or costs too much, is not good.
        fresh: whether the caches are empty.
        pace: how many times slower than the budgets' machine this one is now.
    """

    def __init__(self, levels: Sequence[Level], *, strict: bool, fresh: bool, pace: Callable[[], float] = pace) -> None:
        self._levels = levels
        self._strict = strict
        self._fresh = fresh
        self._pace = pace
        self._folder = Path(tempfile.mkdtemp(prefix="rollbox-levels-"))
        self._ahead: dict[Command, subprocess.Popen[bytes]] = {}
        self._stood: set[Command] = set()
        self._numbers = count()
        self.outcomes: list[Outcome] = []

    def levels(self) -> None:
        """Run all of them; what takes minutes to build is begun first."""
        for command in {level.ahead for level in self._levels if level.ahead and level.why_not() is None}:
            self._begin(command)
        for level in self._levels:
            outcome = Outcome(level, fresh=self._fresh)
            self.outcomes.append(outcome)
            self._level(outcome)

    def _begin(self, command: Command) -> None:
        log = self._log(command)
        print(f"== {' '.join(command)} runs beside the first levels: {log}", flush=True)
        with log.open("wb") as file:
            self._ahead[command] = subprocess.Popen(command, cwd=ROOT, stdout=file, stderr=file, process_group=0)

    def _log(self, command: Command) -> Path:
        return self._folder / f"{Path(command[0]).name}.log"

    def _level(self, outcome: Outcome) -> None:
        level = outcome.level
        if reason := level.why_not():
            outcome.left_out = reason
            outcome.trouble = reason if self._strict else ""
            return
        print(f"\n== {level.name}", flush=True)
        outcome.pace = self._pace()
        began = time.monotonic()
        outcome.trouble = self._set_up(level)
        for step in () if outcome.trouble else level.steps:
            if not self._beside(outcome, step.steps if isinstance(step, Beside) else (step,)):
                break
        outcome.seconds = time.monotonic() - began
        outcome.pace = max(outcome.pace, self._pace())
        if self._strict:
            outcome.judge_cost()

    def _set_up(self, level: Level) -> str:
        """Why it could not be set up; "" when it was."""
        if ahead := self._ahead.pop(level.ahead, None):
            print(f"   waiting for {' '.join(level.ahead)}" if ahead.poll() is None else "", flush=True)
            if ahead.wait() != 0:
                sys.stdout.write(self._log(level.ahead).read_text(errors="replace")[-8_000:])
                return f"{' '.join(level.ahead)} failed"
        if level.stands and self._call(level, level.stands, quiet=True) == 0:
            self._stood.add(level.stands)
        for command in level.setup:
            if (status := self._call(level, command)) != 0:
                return f"{' '.join(command)} failed (exit {status})"
        return ""

    def _beside(self, outcome: Outcome, steps: Sequence[Step]) -> bool:
        """Run steps at the same time; whether all ran to their end, whatever their tests did.

        The first one's output is shown as it comes, that of the others when all have ended.
        """
        limit_s = outcome.budget_s * STUCK
        records = [self._folder / f"{outcome.level.name}-{next(self._numbers)}.jsonl" for _ in steps]
        logs = [record.with_suffix(".log") for record in records[1:]]
        with ExitStack() as files:
            outputs = [None, *(files.enter_context(log.open("wb")) for log in logs)]
            running = [
                self._start(outcome.level, step.command(record), output)
                for step, record, output in zip(steps, records, outputs, strict=True)
            ]
            ended = [self._ended(outcome.level, process, limit_s) for process in running]
        for log in logs:
            sys.stdout.write(log.read_text(errors="replace"))
        judged = [self._judge(outcome, *one) for one in zip(steps, records, ended, strict=True)]
        return all(judged)

    def _judge(self, outcome: Outcome, step: Step, record: Path, status: int) -> bool:
        """Take over what the step's tests did; whether it ran to its end."""
        report = step.report(record)
        outcome.failed += report.failed
        outcome.skipped += report.skipped
        outcome.passed += report.passed
        if status == 0:
            return True
        if report.failed and status == 1:
            outcome.trouble = outcome.trouble or f"{len(outcome.failed)} failed"
            return True
        # It broke off: what its tests did before is no measure, and no second look helps.
        outcome.trouble = f"exit {status}"
        outcome.failed.clear()
        return False

    def take_down(self) -> None:
        """Take down what was set up, unless it was up before; what is still being built is ended, and its logs go."""
        for ahead in self._ahead.values():
            if ahead.poll() is None:
                os.killpg(ahead.pid, signal.SIGTERM)
            ahead.wait()
        done: set[Command] = set()
        for outcome in self.outcomes:
            for command in () if outcome.left_out else outcome.level.teardown:
                # A release goes in any case; a cluster that was up before stays.
                if command in done or (command in outcome.level.stays and outcome.level.stands in self._stood):
                    continue
                done.add(command)
                if self._call(outcome.level, command) != 0:
                    outcome.trouble = outcome.trouble or f"{' '.join(command)} failed"
        shutil.rmtree(self._folder)

    def _call(self, level: Level, command: Command, *, quiet: bool = False) -> int:
        """Run a command; its exit status."""
        return self._start(level, command, subprocess.DEVNULL if quiet else None).wait()

    def _start(self, level: Level, command: Command, output: IO[bytes] | int | None) -> subprocess.Popen[bytes]:
        environ = {**os.environ, **level.environ}
        return subprocess.Popen(command, cwd=ROOT, env=environ, stdout=output, stderr=output)

    def _ended(self, level: Level, process: subprocess.Popen[bytes], limit_s: float) -> int:
        """The exit status. What stands still is interrupted first, so that it takes down what it has set up."""
        try:
            return process.wait(limit_s)
        except subprocess.TimeoutExpired:
            print(f"{level.name} stands still: interrupted after {limit_s:.0f} s", flush=True)
            process.send_signal(signal.SIGINT)
        try:
            process.wait(TAKES_DOWN_S)
        except subprocess.TimeoutExpired:
            process.kill()
        return process.wait() or 1
