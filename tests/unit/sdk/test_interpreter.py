"""Interpreters without a sandbox: hostile frames, and the resident program on every Python that this machine has."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable, Iterator
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rollbox import Cell, Client
from rollbox.errors import Conflict, InvalidArgument
from rollbox.interpreter import program
from rollbox.interpreter.answer import Answer
from rollbox.interpreter.frames import MOST_FRAME_BYTES, Decoder, Frame, encoded
from tests.support.gateway_fake import FakeGateway

KINDS = st.sampled_from([b"H", b"O", b"E", b"R", b"B", b"F"])
FIELDS = st.lists(st.binary(max_size=40) | st.sampled_from([b"main", b"variables", b"7", b"-1"]), max_size=12)


def decoded(data: bytes, sizes: Iterator[int]) -> tuple[list[Frame], Decoder]:
    """Frames of data that comes in pieces."""
    decoder, at = Decoder(), 0
    found: list[Frame] = []
    while at < len(data):
        size = next(sizes, len(data))
        decoder.add(data[at : at + size])
        at += size
        found += decoder.frames()
    return found, decoder


@given(st.lists(st.tuples(KINDS, FIELDS), max_size=8), st.lists(st.integers(1, 30)))
def test_frames_come_whole_however_they_are_cut(frames: list[tuple[bytes, list[bytes]]], sizes: list[int]) -> None:
    found, _ = decoded(b"".join(encoded(kind, *fields) for kind, fields in frames), iter(sizes))
    assert found == [(kind, tuple(fields)) for kind, fields in frames]


@given(st.binary(max_size=200), st.lists(st.integers(1, 30)))
def test_garbage_is_a_conflict_or_waits_for_more(data: bytes, sizes: list[int]) -> None:
    with contextlib.suppress(Conflict):
        _, decoder = decoded(data, iter(sizes))
        assert len(decoder._unread) <= len(data)


@given(KINDS, st.integers(MOST_FRAME_BYTES + 1, 2**32 - 1))
def test_a_length_above_the_bound_is_refused_before_anything_is_kept(kind: bytes, size: int) -> None:
    with pytest.raises(Conflict, match="cannot mean"):
        decoded(kind + size.to_bytes(4, "big"), iter([]))


@given(KINDS, st.binary(min_size=1, max_size=60), st.integers(1, 2**31))
def test_a_field_longer_than_its_frame_is_refused(kind: bytes, body: bytes, more: int) -> None:
    lying = (len(body) + more).to_bytes(4, "big") + body
    with pytest.raises(Conflict, match="do not fit"):
        decoded(kind + len(lying).to_bytes(4, "big") + lying, iter([]))


@given(st.lists(st.tuples(KINDS, FIELDS), max_size=30), st.integers(0, 50))
def test_no_sequence_of_frames_breaks_an_answer_or_its_bounds(
    frames: list[tuple[bytes, list[bytes]]], most: int
) -> None:
    answer = Answer("k", most)
    for kind, fields in frames:
        try:
            found = answer.take(Frame(kind, tuple(fields)))
        except Conflict:
            continue
        if isinstance(found, Cell):
            assert len(found.stdout_bytes) <= most
            assert len(found.stderr_bytes) <= most
            repr(found)
            for result in found.results:
                assert (result.json, result.table) == (None, None)
    assert len(answer.partial().stdout_bytes) <= most


def test_an_end_of_another_cell_is_no_answer() -> None:
    """Code that sends an end of its own would shift all answers that follow."""
    with pytest.raises(Conflict, match="another cell"):
        Answer("k", 10).take(Frame(b"F", (b"before", b"1 2 3 4 5")))
    assert isinstance(Answer("k", 10).take(Frame(b"F", (b"k", b"1 2 3 4 5"))), Cell)


def pythons() -> list[str]:
    """Those that can be run, of all versions that are supported; at least that of the tests."""
    found = [sys.executable]
    roots = [Path("~/.pyenv/versions").expanduser(), Path("~/.local/share/uv/python").expanduser()]
    for minor in range(8, 15):
        here = [str(one) for root in roots for one in sorted(root.glob(f"*3.{minor}.*/bin/python3"))]
        found += here[:1] or filter(None, [shutil.which(f"python3.{minor}")])
    return [one for one in found if subprocess.run([one, "-c", ""], capture_output=True, check=False).returncode == 0]


class Driven:
    """The program as a process of this machine."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin
        assert process.stdout
        self.stdin, self.stdout = process.stdin, process.stdout
        self.decoder = Decoder()
        self.frames: list[Frame] = []

    async def next(self) -> Frame:
        while not self.frames:
            data = await self.stdout.read(2**16)
            assert data, "it has ended"
            self.decoder.add(data)
            self.frames += self.decoder.frames()
        return self.frames.pop(0)

    async def run(self, code: str, key: str) -> Cell:
        self.stdin.write(encoded(b"C", key.encode(), code.encode(), b"10000"))
        answer = Answer(key, 10_000)
        while not isinstance(found := answer.take(await self.next()), Cell):
            pass
        return found


@contextlib.asynccontextmanager
async def driven(python: str) -> AsyncIterator[Driven]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        python, *program.chosen("python", None).argv[1:], stdin=pipe, stdout=pipe, stderr=pipe
    )
    one = Driven(process)
    one.stdin.write(program.chosen("python", None).source.encode())
    assert (await one.next()).kind == b"H"
    try:
        yield one
    finally:
        one.stdin.close()
        await process.communicate()
        assert process.returncode == 0


CELLS = [
    ("6 * 7", "42", "", None),
    ("import os\nprint('a')\nos.system('echo b')\nprint('c')\n1", "1", "a\nb\nc\n", None),
    ("import asyncio\nawait asyncio.sleep(0)\n[x async for x in (i async for i in y())]", None, "", "NameError"),
    ("async def f():\n    return 5\nawait f()", "5", "", None),
    ("def f(: pass", None, "", "SyntaxError"),
    ("import sys; sys.exit(1)", None, "", "SystemExit"),
    ("input()", None, "", "RuntimeError"),
    (
        "def source(): return 1\nimport inspect\nprint(inspect.getsource(source))",
        None,
        "def source(): return 1\n\n",
        None,
    ),
    ("if os.fork() == 0: print('child')\nelse: os.wait()", None, "child\n", None),
    ("if os.fork() == 0:\n  if os.fork() == 0: print('its')\n  else: os.wait()\nelse: os.wait()", None, "its\n", None),
    (
        "sorted(n for n in globals() if not n.startswith('_'))",
        "['asyncio', 'f', 'inspect', 'os', 'source', 'sys']",
        "",
        None,
    ),
]


@pytest.mark.parametrize("python", pythons())
async def test_the_program_runs_on(python: str) -> None:
    async with driven(python) as one:
        for at, (code, text, stdout, error) in enumerate(CELLS):
            cell = await one.run(code, f"k{at}")
            assert (cell.text, cell.stdout, cell.error.name if cell.error else None) == (text, stdout, error), cell
            assert (cell.stderr, cell.execution_count, "rollbox" in str(cell.error)) == ("", at + 1, False), cell.error
        again = await one.run("1 / 0", "k0")
        assert (again.text, again.execution_count) == ("42", 1)


async def test_records_are_bounded_and_what_is_forgotten_runs() -> None:
    async with driven(sys.executable) as one:
        await one.run("n = 0", "first")
        for at in range(1100):
            await one.run("n += 1", f"k{at}")
        await one.run("n += 1", "k1099")
        assert (await one.run("n", "asked")).text == "1100"
        await one.run("n = -1", "first")
        assert (await one.run("n", "asked again")).text == "-1"


async def test_an_image_whose_python_is_too_old_or_broken_is_told(
    client: Client, fake: FakeGateway, tmp_path: Path
) -> None:
    fake.real_execs = True
    sandbox = await client.create("python")
    broken = tmp_path / "python3"
    broken.write_text("#!/bin/sh\necho 'needs Python 3.8' >&2\nexit 1\n")
    broken.chmod(0o755)
    with pytest.raises(InvalidArgument, match=r"needs Python 3\.8") as refused:
        await sandbox.interpreter(env={"PATH": str(tmp_path)})
    assert "3.8 or newer" in refused.value.hint


class Piped:
    """A program that runs cells, as a process of this machine; what is sent comes in pieces."""

    def __init__(self, language: str) -> None:
        one = program.chosen(language, None)
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(one.argv, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, bufsize=0)
        self.decoder = Decoder()
        self.runs = count()
        self.sent(one.source.encode())
        assert self.frames(1)[0].kind == b"H"

    def sent(self, data: bytes, sizes: Iterable[int] = ()) -> None:
        assert self.process.stdin
        pieces = iter(sizes)
        while data:
            size = next(pieces, len(data))
            self.process.stdin.write(data[:size])
            data = data[size:]

    def frames(self, ends: int) -> list[Frame]:
        """What comes up to so many ends (or greetings)."""
        assert self.process.stdout
        found: list[Frame] = []
        while sum(one.kind in b"HF" for one in found) < ends:
            data = self.process.stdout.read(2**16)
            assert data, "it has ended"
            self.decoder.add(data)
            found += self.decoder.frames()
        return found


# By language: a cell that prints these bytes.
PRINTS = {
    "python": "import sys; sys.stdout.buffer.write({!r});".format,
    "node": lambda data: f"process.stdout.write(Buffer.from({list(data)})); undefined",
}


@pytest.fixture(scope="module", params=[one for one in PRINTS if one == "python" or shutil.which("node")])
def piped(request: pytest.FixtureRequest) -> Iterator[tuple[str, Piped]]:
    one = Piped(request.param)
    yield request.param, one
    one.process.communicate()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.integers(0, 4), st.binary(max_size=40)), min_size=1, max_size=4),
    st.lists(st.integers(1, 60), max_size=40),
)
def test_requests_are_answered_once_however_they_are_cut(
    piped: tuple[str, Piped], cells: list[tuple[int, bytes]], sizes: list[int]
) -> None:
    """A request of the same key is one that is sent again: it gets the first answer."""
    language, one = piped
    # Hypothesis repeats what it has tried: these keys are new.
    run = f"{next(one.runs)}-"
    requests = b"".join(
        encoded(b"C", f"{run}{key}".encode(), PRINTS[language](data).encode(), b"20") for key, data in cells
    )
    one.sent(requests, sizes)
    first = dict(reversed(cells))
    counts: dict[int, int] = {}
    frames = iter(one.frames(len(cells)))
    for key, _ in cells:
        answer = Answer(f"{run}{key}", 20)
        found = next(cell for frame in frames if isinstance(cell := answer.take(frame), Cell))
        assert (found.stdout_bytes, found.stdout_total_bytes) == (first[key][:20], len(first[key]))
        assert counts.setdefault(key, found.execution_count) == found.execution_count
