"""The example programs do what they say; here with plain processes instead of sandboxes."""

import asyncio
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import rollbox
from tests.support.eventually import LIMIT_S
from tests.support.examples import EXAMPLES as TRIED
from tests.support.gateway_fake import FakeGateway

EXAMPLES = Path(__file__).parents[3] / "sdk" / "examples"
AT_ONCE = 4


@pytest.fixture
def humaneval(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module("humaneval")


async def outcome(sample: Any, slots: asyncio.Semaphore) -> str:
    """Run a sample: passed, failed by an assertion, or crashed."""
    pipe = asyncio.subprocess.PIPE
    async with slots:
        process = await asyncio.create_subprocess_exec(sys.executable, "-", stdin=pipe, stdout=pipe, stderr=pipe)
        _, stderr = await process.communicate(sample.program.encode())
    return "passed" if process.returncode == 0 else "failed" if b"AssertionError" in stderr else "crashed"


# All of them, by `make fuzz`, take half a minute on two cores; `make demo` runs them all in sandboxes.
@pytest.mark.timeout(1800)
async def test_every_solution_passes_and_every_mutant_fails_by_an_assertion(humaneval: Any) -> None:
    samples = [sample for sample in humaneval.samples(164) if sample.kind in ("canonical", "mutant")]
    assert len(samples) == 2 * 164
    # An odd step: solutions and mutants take turns.
    samples = samples[:: len(samples) // TRIED | 1]
    slots = asyncio.Semaphore(AT_ONCE)
    outcomes = await asyncio.gather(*(outcome(sample, slots) for sample in samples))
    wrong = [sample.name for sample, came in zip(samples, outcomes, strict=True) if came != sample.expected]
    assert wrong == []


def test_every_example_is_short_and_says_what_it_shows() -> None:
    for example in EXAMPLES.glob("*.py"):
        text = example.read_text()
        assert len(text.splitlines()) < 120, example
        assert text.startswith('"""'), example


def test_mutants_are_the_same_each_time(humaneval: Any) -> None:
    assert humaneval.samples(20) == humaneval.samples(20)


def test_the_report_counts_and_is_written(humaneval: Any, tmp_path: Path) -> None:
    samples = humaneval.samples(2)
    with humaneval.Report(len(samples)) as told:
        for sample in samples:
            end = sample.expected if sample.kind in ("endless", "hungry") else "exited"
            told.add(humaneval.Graded(sample, sample.expected, end, create_ms=100.0, exec_ms=5.0))
    assert told.as_expected()
    told.write(tmp_path)
    numbers = json.loads((tmp_path / "report.json").read_text())
    assert {name: numbers[name] for name in ("problems", "canonical_passed", "mutants_failed", "left_behind")} == {
        "problems": 2,
        "canonical_passed": 2,
        "mutants_failed": 2,
        "left_behind": 0,
    }
    assert numbers["ends"] == {"exited": 4, "deadline": 1, "oom_killed": 1}
    assert numbers["create_ms"] == {"p50": 100.0, "p95": 100.0, "p99": 100.0}
    assert (tmp_path / "latency.png").stat().st_size > 1000


@pytest.mark.parametrize("change", ["masked", "left"])
def test_anything_else_is_not_as_expected(humaneval: Any, change: str) -> None:
    sample = humaneval.samples(1)[0]
    with humaneval.Report(1) as told:
        told.add(humaneval.Graded(sample, "masked" if change == "masked" else "passed", "exited"))
    told.left_behind = 1 if change == "left" else 0
    assert not told.as_expected()


def test_the_example_of_two_phases_switches_between_them(apart: FakeGateway) -> None:
    fetch = "import urllib.request as u; print(u.urlopen('https://pypi.org/simple/toposort/', timeout=20).status)"
    apart.results[f"python3 -c {fetch}"] = {"stdout": "200\n"}
    denied = {"host": "pypi.org", "port": 443, "verdict": "denied_name", "policy": "offline", "rule": ""}
    apart.egress.attempts = [{"at_ms": 1, **denied}]
    environment = {**os.environ, "PYTHONPATH": str(Path(rollbox.__file__).parents[1])}
    started = [sys.executable, str(EXAMPLES / "phases.py"), "python"]
    done = subprocess.run(started, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    said = ["set-up: 200", "offline is in force: True", "rollout: 200", "pypi.org:443 denied_name by offline"]
    assert done.stdout.splitlines() == said, "what the network does is scripted here"
    assert [body["egress"] for body in apart.bodies if "egress" in body] == ["packages"]
    assert [asked["policy"] for asked in apart.egress.asked] == ["offline"]
