"""Tries what the threat model promises, and counts the attacks that were tried and those that succeeded.

    python -m tests.security            on an engine, and all that needs neither: `make security`
    python -m tests.security --cluster  on the release of the cluster's tests: `make security-cluster`
    python -m tests.security --again    on the cluster, of what did not hold the last time, or did not run
    python -m tests.security --page     writes the table of docs/inside/threat-model.md from what ran last

What a test tries is bounded in count and time, and goes to what the tests have made themselves.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.levels.table import ELSEWHERE
from tests.security.promises import PAGE, ROOT, Promise, promises
from tests.security.tally import Case, counted, missing, of_native, of_pytest, page

RECORDS: Final = ROOT / "build/security"
# Files of tests by where they run. Those of `product` run on both.
ENGINE: Final = ("tests/product", "tests/local", "tests/unit", "tests/contract", "tests/chart")
CLUSTER: Final = ("tests/product", "tests/e2e")
# The groups of the cluster's tests that do not share a release (`tests/levels/table.py`), one after the other.
GROUPS: Final = (
    f"not ({' or '.join(ELSEWHERE)})",
    "egress",
    "disrupts and not images and not egress and not alone",
    "images",
    "apart or played",
    "alone and not images",
)
NATIVE: Final = ("sidecar", "gateway-rs", "node-go")
_NONE_CHOSEN: Final = 5


def main(arguments: list[str]) -> int:
    """Run, or write the page; the exit status is 1 where an attack has succeeded or a test did not run."""
    told = promises(PAGE.read_text())
    match arguments:
        case ["--page"]:
            _write_page()
            return 0
        case []:
            cases = _pytest(told, ENGINE, "") + _native("rust") + _native("go")
            return _said(told, counted(told, cases), "engine", missing(told, cases, (*ENGINE, *NATIVE)))
        case ["--cluster"]:
            return _on_cluster(told, told, {})
        case ["--again"]:
            before = _records().get("cluster", {})
            held = {says for says, one in before.items() if not one["succeeded"]}
            return _on_cluster(told, [one for one in told if one.says not in held], before)
    print(__doc__, file=sys.stderr)
    return 2


def _on_cluster(told: list[Promise], chosen: list[Promise], before: Mapping[str, Mapping[str, int]]) -> int:
    cases = [case for marks in GROUPS for case in _pytest(chosen, CLUSTER, marks)]
    return _said(told, {**before, **counted(chosen, cases)}, "cluster", missing(chosen, cases, CLUSTER))


def _pytest(told: list[Promise], folders: tuple[str, ...], marks: str) -> list[Case]:
    ids = sorted({f"{file}::{name}" for one in told for file, name in one.tests if file.startswith(folders)})
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        chosen = (*(("-m", marks) if marks else ()), *ids)
        told_by = (f"--junitxml={report}", "-o", "junit_family=xunit1")
        status = subprocess.run(
            (sys.executable, "-m", "pytest", "-q", *told_by, *chosen), cwd=ROOT, check=False
        ).returncode
        return [] if status == _NONE_CHOSEN else of_pytest(report.read_text())


def _native(language: str) -> list[Case]:
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder) / "record"
        subprocess.run((sys.executable, "-m", f"tests.levels.{language}", str(record)), cwd=ROOT, check=False)
        return of_native(json.loads(line) for line in record.read_text().splitlines())


def _said(told: list[Promise], tally: Mapping[str, Mapping[str, int]], place: str, left: list[str]) -> int:
    """Keep and tell a tally; what is promised no more has no part in it."""
    kept = {one.says: tally[one.says] for one in told if one.says in tally}
    RECORDS.mkdir(parents=True, exist_ok=True)
    (RECORDS / f"{place}.json").write_text(json.dumps(kept, indent=1))
    tried, succeeded = (sum(one[kind] for one in kept.values()) for kind in ("tried", "succeeded"))
    for says, one in kept.items():
        if one["succeeded"]:
            print(f"NOT HELD: {says}: {one['succeeded']} of {one['tried']}")
    for test in left:
        print(f"did not run: {test}")
    print(f"{place}: {len(kept)} promises, {tried} attacks tried, {succeeded} succeeded")
    return 1 if succeeded or left else 0


def _records() -> dict[str, dict[str, dict[str, int]]]:
    return {path.stem: json.loads(path.read_text()) for path in RECORDS.glob("*.json")}


def _write_page() -> None:
    text = PAGE.read_text()
    PAGE.write_text(page(text, promises(text), _records()))


if __name__ == "__main__":
    os.chdir(ROOT)
    raise SystemExit(main(sys.argv[1:]))
