"""Readers: a cancelled step loses nothing, has a limit, and the end is said at each step after it."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollbox import Client, FileChange, OutputStream, Process
from rollbox.errors import ExecFailed, InvalidArgument
from rollbox.process.streams import TAIL_BYTES, UNREAD_BYTES
from rollbox.reading import Reading
from tests.support.eventually import eventually
from tests.support.fake_processes import STDOUT, Script
from tests.support.gateway_fake import FakeGateway
from tests.unit.sdk.test_process import spawned


async def cancelled(call: Awaitable[object], waits: Callable[[], object]) -> None:
    """Cancel a call once it waits."""
    task = asyncio.ensure_future(call)
    await eventually(waits)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("what", ["prefetch", "convert"])
async def test_progress_that_was_given_up_goes_on_and_ends_once(client: Client, fake: FakeGateway, what: str) -> None:
    told: Reading[Any] = aiter(client.prefetch("a:1")) if what == "prefetch" else aiter(client.convert("a:1"))
    # Before anything can have come: it waits for the connection.
    task = asyncio.ensure_future(anext(told))
    asyncio.get_running_loop().call_soon(task.cancel)
    with pytest.raises(asyncio.CancelledError):
        await task
    states = [one.state async for one in told]
    assert states == (["pulling", "here", "here"] if what == "prefetch" else ["copying", "converting", "offered"])
    with pytest.raises(StopAsyncIteration):
        await anext(told)
    assert len(fake.images.prefetched if what == "prefetch" else fake.images.converted) == 1


def waits_for(reading: Reading[Any]) -> object:
    return getattr(reading._came, "_getters")  # noqa: B009 - not typed


async def half_a_line(client: Client, fake: FakeGateway) -> Process:
    process = await spawned(client, fake, Script("hé".encode()[:2], hold=True))
    await eventually(lambda: "e1" in fake.processes.execs)
    return process


def said(fake: FakeGateway, data: bytes) -> None:
    run = fake.processes.execs["e1"]
    run.outputs[STDOUT] += data
    run.tell()


@pytest.mark.parametrize("way", ["lines", "readline", "text"])
async def test_a_line_that_was_given_up_half_way_comes_whole(client: Client, fake: FakeGateway, way: str) -> None:
    process = await half_a_line(client, fake)
    out = process.stdout
    lines, text = out.lines(), out.text()

    async def step() -> str | None:
        if way == "readline":
            return await out.readline()
        return await anext(lines if way == "lines" else text)

    if way == "text":
        assert await step() == "h"
    for _ in range(3):
        await cancelled(step(), lambda: out.waiting_readers and out.received == 2)
    said(fake, "hé\nrest".encode()[2:])
    assert await step() == ("é\nrest" if way == "text" else "hé")
    assert out.offset == len(("hé\nrest" if way == "text" else "hé\n").encode())
    await process.aclose()


async def test_ways_to_read_may_be_mixed(client: Client, fake: FakeGateway) -> None:
    async with await spawned(client, fake, Script(b"one\ntwo\nthree")) as process:
        out = process.stdout
        async for line in out.lines():
            assert line == "one"
            break
        assert (await out.readline(), out.offset) == ("two", 8)
        assert (await out.next_bytes(), out.offset) == (b"three", 13)
        for _ in range(2):
            assert (await out.readline(), await out.next_bytes(), await out.read()) == (None, b"", b"")
            with pytest.raises(StopAsyncIteration):
                await anext(out.lines())


async def test_a_limit_ends_the_wait_and_not_the_reading(
    client: Client, fake: FakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = await half_a_line(client, fake)
    out = process.stdout
    ways: list[Callable[[], Awaitable[object]]] = [
        lambda: out.readline(timeout=60),
        lambda: out.read(timeout=60),
        lambda: process.wait(timeout=60),
    ]
    with monkeypatch.context() as at_once:
        at_once.setattr("rollbox.process.streams.milliseconds", lambda name, value: 0)
        for way in ways:
            with pytest.raises(TimeoutError):
                await way()
    said(fake, b"\xa9\n")
    assert await out.readline(timeout=60) == "hé"
    with pytest.raises(InvalidArgument, match="timeout"):
        await out.next_bytes(timeout=0)
    await process.aclose()


@given(st.lists(st.binary(max_size=12), max_size=12))
async def test_lines_and_text_are_those_of_the_whole_output(parts: list[bytes]) -> None:
    whole = b"".join(parts)
    lines = whole.decode("utf-8", "replace").split("\n")
    assert [line async for line in came(parts).lines()] == (lines if lines[-1] else lines[:-1])
    assert "".join([text async for text in came(parts).text()]) == whole.decode("utf-8", "replace")
    assert await came(parts).read() == whole


def came(parts: list[bytes]) -> OutputStream:
    """A stream to which these parts have come."""
    stream = OutputStream(_Nothing(), 0)
    for part in parts:
        stream.arrived(stream.received, part)
    stream.finish(stream.received)
    return stream


class _Nothing:
    async def until(self, done: Callable[[], bool]) -> None:
        assert done()

    def announce(self) -> None:
        pass


async def test_the_result_has_the_end_of_each_output(client: Client, fake: FakeGateway) -> None:
    script = Script(b"o" * (UNREAD_BYTES + 3 * TAIL_BYTES) + b"end", b"why\n", 3)
    async with await spawned(client, fake, script) as process:
        result = await process.wait()
    assert (len(result.stdout_bytes), result.stdout_bytes[-4:], result.stdout_truncated) == (TAIL_BYTES, b"oend", True)
    assert (result.stderr, result.stderr_truncated) == ("why\n", False)
    with pytest.raises(ExecFailed, match="stderr ends with 'why'"):
        result.check()


async def test_a_watch_goes_on_after_a_step_that_was_given_up(client: Client, fake: FakeGateway) -> None:
    changes = (await client.create("python")).files.watch("/")
    assert (await anext(changes)).change == "watching"
    await cancelled(anext(changes), lambda: waits_for(changes))
    fake.files.changes.put_nowait({"change": "created", "path": "/a"})
    assert await anext(changes) == FileChange("created", "/a")
    await changes.aclose()
    with pytest.raises(StopAsyncIteration):
        await anext(changes)
    assert len(fake.files.queries) == 1


async def test_a_step_that_fails_says_so_once_and_then_the_end() -> None:
    async def broken() -> AsyncGenerator[int, None]:
        yield 1
        raise ValueError("broken")

    reading = Reading(broken())
    assert await anext(reading) == 1
    with pytest.raises(ValueError, match="broken"):
        await anext(reading)
    for _ in range(2):
        with pytest.raises(StopAsyncIteration):
            await anext(reading)


async def test_an_iteration_that_is_left_in_a_step_closes_its_source() -> None:
    closed = asyncio.Event()

    async def waits() -> AsyncGenerator[int, None]:
        try:
            await asyncio.Event().wait()
            yield 1
        finally:
            closed.set()

    reading = Reading(waits())
    await cancelled(anext(reading), lambda: waits_for(reading))
    await asyncio.sleep(0)
    assert not closed.is_set()
    await reading.aclose()
    assert closed.is_set()
