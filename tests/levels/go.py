"""Checks and tests the Go module: gofmt, `go vet`, `go test`, and writes what each test did.

python -m tests.levels.go RECORD                all of them
python -m tests.levels.go --only PACKAGE NAME   one, alone
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

MODULE = Path(__file__).parent.parent.parent / "node-go"
TEST = ("go", "test", "-count=1")
OUTCOMES = {"pass": "passed", "fail": "failed", "skip": "skipped"}


def outcomes(events: Iterable[str]) -> Iterator[dict[str, str]]:
    """What each test did, from the events of `go test -json`, one a line; parts of a test count with it."""
    said: dict[tuple[str, str], str] = {}
    for line in events:
        event = json.loads(line) if line.startswith("{") else {}
        package, name = event.get("Package", ""), event.get("Test", "").partition("/")[0]
        if event.get("Action") == "output":
            said[package, name] = said.get((package, name), "") + event["Output"]
        elif name and "/" not in event["Test"] and (outcome := OUTCOMES.get(event.get("Action", ""))):
            output = said.get((package, name), "")[-8_000:]
            yield {"package": package, "name": name, "outcome": outcome, "output": output}


def _check() -> int:
    """The exit status of what needs no test."""
    unformatted = subprocess.run(["gofmt", "-l", "."], cwd=MODULE, check=True, capture_output=True, text=True).stdout
    if unformatted:
        print(f"not as gofmt writes it: {' '.join(unformatted.split())}")
        return 1
    return subprocess.run(["go", "vet", "./..."], cwd=MODULE, check=False).returncode


def _all(record: Path) -> int:
    if _check():
        return 2
    done = subprocess.run([*TEST, "-json", "./..."], cwd=MODULE, stdout=subprocess.PIPE, text=True, check=False)
    tests = list(outcomes(done.stdout.splitlines()))
    record.write_text("".join(json.dumps(test) + "\n" for test in tests))
    failed = [test for test in tests if test["outcome"] == "failed"]
    for test in failed:
        print(f"{test['package']} {test['name']}\n{test['output']}")
    print(f"{len(tests)} tests of {len({test['package'] for test in tests})} packages")
    if done.returncode and not failed:
        # Nothing was compiled, or a program died between its tests.
        print("".join(_output(done.stdout)))
        return 2
    return 1 if failed or not tests else 0


def _output(events: str) -> Iterator[str]:
    for line in events.splitlines():
        yield json.loads(line).get("Output", "") if line.startswith("{") else f"{line}\n"


def _one(package: str, name: str) -> int:
    command = [*TEST, "-v", "-run", f"^{re.escape(name)}$", package]
    done = subprocess.run(command, cwd=MODULE, stdout=subprocess.PIPE, text=True, check=False)
    print(done.stdout)
    return done.returncode if f"--- PASS: {name}" in done.stdout else done.returncode or 1


def main(arguments: list[str]) -> int:
    """Run all, or one; the exit status."""
    match arguments:
        case ["--only", package, name]:
            return _one(package, name)
        case [record]:
            Path(record).write_text("")
            return _all(Path(record))
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
