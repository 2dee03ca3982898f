"""A corpus of too many inputs is replaced by those that cover the same, and nothing that goes wrong loses an input."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

import pytest

SETUP: Final = Path(__file__).parent.parent.parent / "setup" / "corpora.sh"
# In the place of a fuzz target: it keeps the input `a`, as libFuzzer's merge with its last two arguments does.
MERGE: Final = """#!/bin/sh
while [ $# -gt 2 ]; do shift; done
cp "$2/a" "$1/"
echo "MERGE-OUTER: successful in $ATTEMPTS attempt(s)"
exit $CODE
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A target's folder, with three inputs."""
    target = tmp_path / "target"
    _inputs(target / "corpus", "abc")
    program = tmp_path / "program"
    program.write_text(MERGE)
    program.chmod(0o755)
    return target


def _inputs(corpus: Path, names: str) -> None:
    corpus.mkdir(parents=True)
    for name in names:
        (corpus / name).write_text(name)


def _run(folder: Path, script: str, *, attempts: int = 1, code: int = 0) -> int:
    environ = {**os.environ, "limits": "-timeout=30", "ATTEMPTS": str(attempts), "CODE": str(code)}
    command = ["bash", "-c", f"source '{SETUP}'; {script}", "bash", str(folder), str(folder.parent / "program")]
    return subprocess.run(command, env=environ, timeout=60, check=False).returncode


def _names(folder: Path) -> str:
    return "".join(sorted(path.name for path in (folder / "corpus").iterdir()))


@pytest.mark.parametrize(("most", "left"), [(2, "a"), (3, "abc")])
def test_a_corpus_of_too_many_inputs_is_minimised(folder: Path, most: int, left: str) -> None:
    assert _run(folder, f'MOST_INPUTS={most}; minimise_corpus "$@"') == 0
    assert _names(folder) == left
    assert {path.name for path in folder.iterdir()} <= {"corpus", "log"}


@pytest.mark.parametrize(("attempts", "code"), [(2, 0), (1, 1)])
def test_a_merge_that_left_an_input_out_or_failed_changes_nothing(folder: Path, attempts: int, code: int) -> None:
    assert _run(folder, 'MOST_INPUTS=2; minimise_corpus "$@"', attempts=attempts, code=code) == 1
    assert _names(folder) == "abc"
    assert _run(folder, 'replace_corpus "$1"') == 0
    assert _names(folder) == "abc"
    assert _run(folder, 'MOST_INPUTS=2; minimise_corpus "$@"') == 0, "what is left of it does not hinder the next"
    assert _names(folder) == "a"


@pytest.mark.parametrize("removed", ["", "a", "abc"])
def test_a_replacement_that_was_interrupted_is_ended_by_the_next_run(folder: Path, removed: str) -> None:
    _inputs(folder / "merged", "a")
    for name in removed:
        (folder / "corpus" / name).unlink()
    assert _run(folder, 'replace_corpus "$1"') == 0
    assert _names(folder) == "a"
