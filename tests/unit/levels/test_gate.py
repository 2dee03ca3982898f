"""When the gate is shut: by failures, by flaky tests, and by levels that cost too much."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.levels import again, flaky, table
from tests.levels.outcome import Outcome
from tests.levels.outcome import table as told
from tests.levels.run import Run
from tests.levels.steps import Beside, Command, Failed, Plain, Pytest, Report
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


def test_what_passes_alone_is_flaky_and_the_gate_stays_open(own_list: Path) -> None:
    outcome = failed("a", PASSES)
    again.second_look([outcome])
    assert outcome.trouble == ""
    assert flaky.known(own_list) == {"a"}
    text = own_list.read_text()
    assert "ill at first" in text
    assert "well" in text
    assert "load: " in text


def test_what_fails_again_shuts_the_gate(own_list: Path) -> None:
    outcomes = [failed("a", PASSES), failed("b", FAILS)]
    again.second_look(outcomes)
    assert [outcome.trouble for outcome in outcomes] == ["failed twice: b"] * 2
    assert flaky.known(own_list) == {"a"}


def test_what_is_on_the_list_already_shuts_the_gate() -> None:
    flaky.add([flaky.flaky("a", "one", "ill", "well")])
    outcome = failed("a", PASSES)
    again.second_look([outcome])
    assert outcome.trouble == "on the list of flaky tests already: a"


def test_more_than_three_flaky_tests_are_no_accident() -> None:
    outcomes = [failed(name, PASSES) for name in "abcd"]
    again.second_look(outcomes)
    assert [outcome.trouble for outcome in outcomes] == ["1 failed"] * 4
    assert flaky.shut("abcd", [], frozenset()) == "4 flaky tests, and at most 3 are let through"
    assert flaky.shut("abc", [], frozenset()) is None


def run(*levels: Level, strict: bool = True) -> list[Outcome]:
    """Runs them; what they did."""
    made = Run(levels, strict=strict, fresh=False, pace=lambda: 1.0)
    made.levels()
    made.take_down()
    assert not made._folder.exists()
    return made.outcomes


def test_a_level_that_takes_thrice_its_budget_is_not_good() -> None:
    outcome = Outcome(level(), seconds=181)
    outcome.judge_cost()
    assert outcome.trouble.startswith("took 181 s")
    over = Outcome(level(), seconds=179)
    over.judge_cost()
    assert over.trouble == ""
    assert "good, but over its budget" in next(line for line in told([over]) if "179" in line)
    # A machine that is busy with something else stretches every level alike.
    slow = Outcome(level(), seconds=181, pace=1.1)
    slow.judge_cost()
    assert slow.trouble == ""


def test_a_command_that_fails_ends_its_level_and_no_other(capfd: pytest.CaptureFixture[str]) -> None:
    first, second = run(level(FAILS, PASSES), level(PASSES))
    assert (first.trouble, second.trouble) == ("exit 1", "")
    assert capfd.readouterr().out.count("well") == 1


def test_steps_run_beside_each_other_and_each_is_judged(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Each waits for the other one's pipe: one after the other, the first would wait for ever."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reads = Plain((sys.executable, "-c", f"print(open({str(pipe)!r}).read())"))
    writes = Plain((sys.executable, "-c", f"open({str(pipe)!r}, 'w').write('met'); print('wrote')"))
    (outcome,) = run(Level("one", (Beside((reads, writes)),), budget_s=60, fresh_s=60))
    assert outcome.trouble == ""
    assert capfd.readouterr().out.split()[-2:] == ["met", "wrote"]
    (outcome,) = run(Level("one", (Beside((Plain(PASSES), Plain(FAILS))), Plain(PASSES)), budget_s=60, fresh_s=60))
    assert outcome.trouble == "exit 1"
    assert capfd.readouterr().out.count("well") == 1


def test_what_stands_still_is_interrupted() -> None:
    forever = (sys.executable, "-c", "import time; time.sleep(600)")
    (outcome,) = run(level(forever, budget_s=0.1))
    assert outcome.trouble.startswith("exit ")


def test_a_level_that_cannot_run_is_a_failure_only_where_all_must() -> None:
    left_out = level(PASSES, why_not=lambda: "no engine")
    assert [outcome.trouble for outcome in run(left_out)] == ["no engine"]
    assert [outcome.trouble for outcome in run(left_out, strict=False)] == [""]


def test_what_is_set_up_is_taken_down_at_the_end_unless_it_was_up_before(tmp_path: Path) -> None:
    note = tmp_path / "notes"
    say = [(sys.executable, "-c", f"open({str(note)!r}, 'a').write({word!r})") for word in ("up ", "down ", "off ")]
    whole = level(PASSES, setup=(say[0],), teardown=(say[1], say[2]), stands=FAILS, stays=(say[2],))
    run(whole)
    assert note.read_text() == "up down off "
    note.unlink()
    run(level(PASSES, setup=(say[0],), teardown=(say[1], say[2]), stands=PASSES, stays=(say[2],)))
    assert note.read_text() == "up down "


def test_what_is_built_ahead_and_fails_is_told_by_the_level_that_needs_it(capfd: pytest.CaptureFixture[str]) -> None:
    (outcome,) = run(level(PASSES, ahead=(sys.executable, "-c", "raise SystemExit('no compiler')")))
    assert outcome.trouble.endswith("failed")
    assert "no compiler" in capfd.readouterr().out


def test_the_table_counts_and_names_what_was_skipped() -> None:
    outcome = Outcome(level(), seconds=12, passed=3)
    outcome.skipped = Report(skipped=["test_kubelet: not ours to stop"]).skipped
    lines = list(told([outcome, Outcome(level(), left_out="no engine")]))
    assert lines[1].split() == ["one", "12", "60", "3", "0", "1", "good"]
    assert "left out: no engine" in lines[2]
    assert lines[-2:] == ["\n1 tests were skipped:", "  test_kubelet: not ours to stop"]


def test_groups_and_levels_are_chosen_by_name() -> None:
    assert [level.name for level in table.chosen(["local", "pure"])] == ["pure", "local"]
    assert [level.name for level in table.chosen([])] == ["pure", "unit", "contract", "rust", "go", "local", "chart"]
    with pytest.raises(ValueError, match="there is no level 'e3e'; there are: test, gate, e2e-whole, lint"):
        table.chosen(["e3e"])


def test_every_test_is_of_a_level() -> None:
    tests = Path(table.__file__).parent.parent
    steps = [step for level in table.LEVELS for step in level.steps]
    single = [one for step in steps for one in (step.steps if isinstance(step, Beside) else (step,))]
    places = {tests / path for step in single if isinstance(step, Pytest) for path in step.paths}
    files = set(tests.rglob("test_*.py"))
    assert {file for file in files if not places & {file, *file.parents}} == set()
