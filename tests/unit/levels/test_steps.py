"""What a run of tests did is read from its record, and each failure can be run again by itself."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.levels import go, rust
from tests.levels.steps import Go, Pytest, Rust, pytest_command

CASES = """
import pytest

def test_good(): pass

@pytest.mark.parametrize("word", ["a b", "c/d[e]"])
def test_bad(word): print("printed", word); assert word == "x"

@pytest.fixture
def broken(): raise OSError("no such thing")

def test_needs(broken): pass

@pytest.mark.skip(reason="not on this one")
def test_left_out(): pass
"""


def _run(folder: Path, *options: str) -> Path:
    """Runs the cases in a process of their own; their record."""
    (folder / "test_cases.py").write_text(CASES)
    record = folder / "record.jsonl"
    command = (*pytest_command(), f"--record={record}", "-c", "/dev/null", *options, str(folder / "test_cases.py"))
    subprocess.run(command, capture_output=True, check=False)
    return record


def test_the_record_of_pytest_names_what_failed_and_what_it_said(tmp_path: Path) -> None:
    report = Pytest(("unit",)).report(_run(tmp_path))
    assert report.passed == 1
    names = [failed.name.split("::")[1] for failed in report.failed]
    assert names == ["test_bad[a b]", "test_bad[c/d[e]]", "test_needs"]
    assert "printed a b" in report.failed[0].output
    assert "no such thing" in report.failed[2].output
    (skipped,) = report.skipped
    assert skipped.endswith("not on this one")


LIBTEST = """
running 4 tests
test files::a ... ok
test files::b ... FAILED
test slow ... ignored, takes a day
test breaks - should panic ... ok

failures:

---- files::b stdout ----

thread 'files::b' panicked at src/files.rs:3:5:
left: 1

failures:
    files::b

test result: FAILED. 2 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s
"""


def test_the_words_of_libtest_are_outcomes(tmp_path: Path) -> None:
    tests = list(rust.outcomes("gateway/files", LIBTEST))
    assert [(test["name"], test["outcome"]) for test in tests] == [
        ("files::a", "passed"),
        ("files::b", "failed"),
        ("slow", "skipped"),
        ("breaks", "passed"),
    ]
    record = tmp_path / "record.jsonl"
    record.write_text("".join(json.dumps(test) + "\n" for test in tests))
    report = Rust().report(record)
    (failed,) = report.failed
    assert "left: 1" in failed.output
    assert failed.again == (sys.executable, "-m", "tests.levels.rust", "--only", "gateway/files", "files::b")


def test_the_events_of_go_test_are_outcomes(tmp_path: Path) -> None:
    def event(action: str, test: str = "", output: str = "") -> str:
        named = {"Action": action, "Package": "rollbox.dev/node/cri", "Test": test, "Output": output}
        return json.dumps({key: value for key, value in named.items() if value})

    lines = [
        event("run", "TestList"),
        event("output", "TestList/empty", "got 1\n"),
        event("fail", "TestList/empty"),
        event("fail", "TestList"),
        event("pass", "TestPull"),
        event("skip", "TestLazy"),
        event("fail"),
        "# a line of the compiler's",
    ]
    tests = list(go.outcomes(lines))
    assert [(test["name"], test["outcome"]) for test in tests] == [
        ("TestList", "failed"),
        ("TestPull", "passed"),
        ("TestLazy", "skipped"),
    ]
    record = tmp_path / "record.jsonl"
    record.write_text("".join(json.dumps(test) + "\n" for test in tests))
    report = Go().report(record)
    (failed,) = report.failed
    assert failed.output == "got 1\n"
    assert failed.again == (
        sys.executable,
        "-m",
        "tests.levels.go",
        "--only",
        "rollbox.dev/node/cri",
        "TestList",
    )
    assert (report.passed, report.skipped) == (1, ["TestLazy"])
