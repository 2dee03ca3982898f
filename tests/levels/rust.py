"""Runs the Rust tests, two programs at a time, and writes what each test did.

    python -m tests.levels.rust RECORD               all of them
    python -m tests.levels.rust --only BINARY NAME   one, alone

`cargo test` runs its programs one after the other, and those that wait for real sockets leave a core idle.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

WORKSPACE = ("--manifest-path", "gateway-rs/Cargo.toml", "--workspace")
BUILD = ("setup/cargo.sh", "--config", "net.retry=5", "test", "--locked", *WORKSPACE, "--no-run", "--quiet")
AT_ONCE = 2
TEST = re.compile(r"^test (?P<name>\S+)(?: - should panic)? \.\.\. (?P<outcome>ok|FAILED|ignored)", re.M)
OUTPUT = re.compile(
    r"^---- (?P<name>\S+) stdout ----\n(?P<said>.*?)(?=^---- |^failures:$|\Z)", re.MULTILINE | re.DOTALL
)
OUTCOMES = {"ok": "passed", "FAILED": "failed", "ignored": "skipped"}


@dataclass(frozen=True)
class Program:
    """A program of tests, and the folder of its package, in which it runs as under cargo."""

    executable: Path
    folder: Path

    @property
    def name(self) -> str:
        """Its name without cargo's hash, the same in every build."""
        return f"{self.folder.name}/{self.executable.name.rsplit('-', 1)[0]}"


def programs(messages: str) -> list[Program]:
    """The programs of tests among cargo's messages (JSON, one a line)."""
    found = []
    for line in messages.splitlines():
        message = json.loads(line) if line.startswith("{") else {}
        if message.get("executable") and message.get("profile", {}).get("test"):
            found.append(Program(Path(message["executable"]), Path(message["manifest_path"]).parent))
    return found


def outcomes(binary: str, output: str) -> Iterator[dict[str, str]]:
    """What each test of a program did, from libtest's words."""
    said = {match["name"]: match["said"] for match in OUTPUT.finditer(output)}
    for match in TEST.finditer(output):
        outcome = OUTCOMES[match["outcome"]]
        name = match["name"]
        yield {"binary": binary, "name": name, "outcome": outcome, "output": said.get(name, "")[-8_000:]}


async def _build() -> list[Program]:
    build = await asyncio.create_subprocess_exec(
        *BUILD, "--message-format=json-render-diagnostics", stdout=asyncio.subprocess.PIPE
    )
    messages, _ = await build.communicate()
    if build.returncode != 0:
        raise SystemExit(build.returncode)
    return programs(messages.decode())


async def _run(program: Program, *options: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        str(program.executable),
        *options,
        cwd=program.folder,
        env={**os.environ, "CARGO_MANIFEST_DIR": str(program.folder)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode(errors="replace")


async def _all(record: Path) -> int:
    found = await _build()
    places = asyncio.Semaphore(AT_ONCE)

    async def placed(program: Program) -> int:
        async with places:
            status, output = await _run(program)
        tests = list(outcomes(program.name, output))
        with record.open("a") as file:
            file.writelines(json.dumps(test) + "\n" for test in tests)
        # A program that dies says nothing of the tests that it did not come to.
        shown = output if status else output.strip().splitlines()[-1] if tests else ""
        print(f"{program.name}: {shown.strip()}" if shown else f"{program.name}: no tests", flush=True)
        return status

    statuses = await asyncio.gather(*(placed(program) for program in found))
    # As of pytest: 1 for tests that failed. libtest says 101.
    return 1 if any(statuses) or not statuses else 0


async def _one(binary: str, name: str) -> int:
    (program,) = [one for one in await _build() if one.name == binary]
    status, output = await _run(program, "--exact", name)
    print(output)
    return status if any(test["outcome"] == "passed" for test in outcomes(binary, output)) else status or 1


def main(arguments: list[str]) -> int:
    """Run all, or one; the exit status is that of the worst program."""
    match arguments:
        case ["--only", binary, name]:
            return asyncio.run(_one(binary, name))
        case [record]:
            Path(record).write_text("")
            return asyncio.run(_all(Path(record)))
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
