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


def test_a_step_beside_others_has_owners_of_its_own() -> None:
    command = Pytest(("e2e",), first_owner=2).command(Path("record"))
    assert command[:2] == ("env", "ROLLBOX_TEST_FIRST_OWNER=2")
    assert Pytest(("e2e",)).command(Path("record"))[:1] == (sys.executable,)


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


def test_files_that_are_named_begin_first(tmp_path: Path) -> None:
    names = ["test_a.py", "test_b.py", "test_c.py"]
    for name in names:
        (tmp_path / name).write_text("def test_it(): pass\n")
    record = tmp_path / "record.jsonl"
    step = Pytest(("x",), first=("c", "b")).command(record)
    assert [word for word in step if word.startswith("--first")] == ["--first=tests/c", "--first=tests/b"]
    first = (f"--first={tmp_path / 'test_c.py'}", f"--first={tmp_path / 'test_b.py'}")
    subprocess.run((*pytest_command(), f"--record={record}", "-c", "/dev/null", *first, str(tmp_path)), check=True)
    ran = [json.loads(line)["name"].partition("::")[0] for line in record.read_text().splitlines()]
    assert [Path(one).name for one in ran] == ["test_c.py", "test_b.py", "test_a.py"]


def test_two_processes_write_one_record(tmp_path: Path) -> None:
    report = Pytest(("unit",)).report(_run(tmp_path, "-n", "2", "-p", "xdist"))
    assert (report.passed, len(report.failed), len(report.skipped)) == (1, 3, 1)


def test_a_failure_of_pytest_runs_again_by_its_name(tmp_path: Path) -> None:
    failed = Pytest(("unit",)).report(_run(tmp_path)).failed[1]
    assert failed.again == (*pytest_command(), failed.name)


def test_half_a_line_of_a_run_that_was_killed_is_left_out(tmp_path: Path) -> None:
    record = tmp_path / "record.jsonl"
    record.write_text(json.dumps({"name": "a", "outcome": "failed", "output": "x"}) + '\n{"name": "b", "outc')
    assert [failed.name for failed in Pytest(("unit",)).report(record).failed] == ["a"]
    assert Pytest(("unit",)).report(tmp_path / "none").failed == []


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


def test_programs_of_tests_are_found_among_cargos_messages() -> None:
    artifact = {"reason": "compiler-artifact", "manifest_path": "/src/gateway/Cargo.toml", "profile": {"test": True}}
    built = {**artifact, "executable": "/target/debug/deps/drain-0123abcd"}
    binary = {**built, "profile": {"test": False}, "executable": "/target/debug/rollbox-gateway"}
    lines = "\n".join(json.dumps(message) for message in (artifact, built, binary, {"reason": "build-finished"}))
    (program,) = rust.programs(lines)
    assert (program.name, program.folder) == ("gateway/drain", Path("/src/gateway"))
