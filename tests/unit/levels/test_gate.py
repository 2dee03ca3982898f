"""When the gate is shut: by failures, by flaky tests, and by levels that cost too much."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.levels import again, flaky, table
from tests.levels.outcome import Outcome
from tests.levels.run import Run
from tests.levels.steps import Beside, Command, Failed, Plain, Pytest
from tests.levels.table import Level

PASSES = (sys.executable, "-c", "print('well')")
FAILS = (sys.executable, "-c", "raise SystemExit('ill')")


def level(*words: Command, **more: object) -> Level:
    """A level of plain commands."""
    return Level("one", tuple(Plain(one) for one in words), **{"budget_s": 60, "fresh_s": 60, **more})  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def own_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A list of flaky tests of the test's own."""
    path = tmp_path / "flaky.yaml"
    monkeypatch.setattr(flaky, "LIST", path)
    return path


def failed(name: str, command: Command) -> Outcome:
    """A level of which one test failed, which then does this."""
    return Outcome(level(), trouble="1 failed", failed=[Failed(name, command, "ill at first")])


def test_what_fails_again_shuts_the_gate(own_list: Path) -> None:
    outcomes = [failed("a", PASSES), failed("b", FAILS)]
    again.second_look(outcomes)
    assert [outcome.trouble for outcome in outcomes] == ["failed twice: b"] * 2
    assert flaky.known(own_list) == {"a"}


def run(*levels: Level, strict: bool = True) -> list[Outcome]:
    """Runs them; what they did."""
    made = Run(levels, strict=strict, fresh=False, pace=lambda: 1.0)
    made.levels()
    made.take_down()
    assert not made._folder.exists()
    return made.outcomes


def test_a_command_that_fails_ends_its_level_and_no_other(capfd: pytest.CaptureFixture[str]) -> None:
    first, second = run(level(FAILS, PASSES), level(PASSES))
    assert (first.trouble, second.trouble) == ("exit 1", "")
    assert capfd.readouterr().out.count("well") == 1


def test_a_level_that_cannot_run_is_a_failure_only_where_all_must() -> None:
    left_out = level(PASSES, why_not=lambda: "no engine")
    assert [outcome.trouble for outcome in run(left_out)] == ["no engine"]
    assert [outcome.trouble for outcome in run(left_out, strict=False)] == [""]


def test_every_test_is_of_a_level() -> None:
    tests = Path(table.__file__).parent.parent
    steps = [step for level in table.LEVELS for step in level.steps]
    single = [one for step in steps for one in (step.steps if isinstance(step, Beside) else (step,))]
    places = {tests / path for step in single if isinstance(step, Pytest) for path in step.paths}
    files = set(tests.rglob("test_*.py"))
    assert {file for file in files if not places & {file, *file.parents}} == set()
