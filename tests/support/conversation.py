"""A command that talks both ways all the time, and the proof that nothing of what was said was lost or doubled."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from rollbox import Process, Sandbox
from tests.support.waiting import until

EXIT_CODE = 42
# stdout: numbered lines until stdin ends, then their number. stderr: each line of stdin, word for word.
PROGRAM = f"""
import sys, threading, time
over = threading.Event()

def counting():
    number = 0
    while not over.is_set():
        print(f"line {{number}} " + "x" * (number * 37 % 400), flush=True)
        number += 1
        time.sleep(0.002)
    print("lines", number, flush=True)

counter = threading.Thread(target=counting)
counter.start()
for line in sys.stdin.buffer:
    sys.stderr.buffer.write(line)
    sys.stderr.buffer.flush()
over.set()
counter.join()
open("/tmp/conversations", "a").write(sys.argv[1] + "\\n")
sys.exit({EXIT_CODE})
"""


class Conversation:
    """One such command, read and written without a pause."""

    def __init__(self, process: Process, name: str) -> None:
        self._process = process
        self._name = name
        self._over = False
        self._said = 0
        self._stdout = bytearray()
        self._stderr = bytearray()

    async def goes_on(self, bytes_each: int = 20_000) -> None:
        """Returns when this much more has come on both streams than now: all three streams work."""
        wanted = len(self._stdout) + bytes_each, len(self._stderr) + bytes_each

        async def came() -> bool:
            await asyncio.sleep(0.02)
            return len(self._stdout) >= wanted[0] and len(self._stderr) >= wanted[1]

        await until(came, 90)

    def ends(self) -> None:
        """Stdin ends after the line that is being written."""
        self._over = True

    async def run(self) -> None:
        """To the command's end; every byte and the exit code are accounted for."""
        async with self._process as process, asyncio.TaskGroup() as group:
            group.create_task(self._read())
            group.create_task(self._read_errors())
            group.create_task(self._speak())
            result = await process.wait()
        assert (result.end, result.exit_code) == ("exited", EXIT_CODE), result
        assert process.stdout.gaps == process.stderr.gaps == []
        assert (result.stdout_total_bytes, result.stderr_total_bytes) == (len(self._stdout), len(self._stderr))
        *lines, last = self._stdout.decode().splitlines()
        assert last == f"lines {len(lines)}"
        assert lines == [f"line {n} " + "x" * (n * 37 % 400) for n in range(len(lines))]
        assert bytes(self._stderr) == b"".join(self._spoken(n) for n in range(self._said))

    async def _read(self) -> None:
        async for data in self._process.stdout:
            self._stdout += data

    async def _read_errors(self) -> None:
        async for data in self._process.stderr:
            self._stderr += data

    async def _speak(self) -> None:
        while not self._over:
            await self._process.stdin.write(self._spoken(self._said))
            self._said += 1
            await asyncio.sleep(0.002)
        await self._process.stdin.write_eof()

    def _spoken(self, number: int) -> bytes:
        return f"{self._name} says {number} ".encode() + b"y" * (number * 53 % 700) + b"\n"


@contextlib.asynccontextmanager
async def conversing(sandboxes: list[Sandbox], each: int = 2) -> AsyncIterator[list[Conversation]]:
    """That many conversations in each sandbox go on while the block runs, and end rightly after it."""
    async with asyncio.TaskGroup() as group:
        talks: list[Conversation] = []
        for sandbox in sandboxes:
            await sandbox.files.write("/tmp/converse.py", PROGRAM)
            for n in range(each):
                process = await sandbox.spawn(["python3", "/tmp/converse.py", str(n)])
                talks.append(Conversation(process, str(n)))
                group.create_task(talks[-1].run())
        try:
            yield talks
        finally:
            for talk in talks:
                talk.ends()
    for sandbox in sandboxes:
        ran = (await sandbox.exec("sort -n /tmp/conversations", check=True)).stdout.split()
        assert ran == [str(n) for n in range(each)], "a command ran twice or not at all"
