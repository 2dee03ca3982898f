"""Processes: no byte and no exit code is lost or repeated, however often the connection breaks."""

import asyncio
import os
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollbox import Client, Gap, Process
from rollbox.errors import Conflict, Internal, InvalidArgument, SandboxLost, StreamInterrupted
from rollbox.process import frames
from rollbox.process.streams import UNREAD_BYTES
from tests.support.fake_processes import STDOUT, FakeExec, Script
from tests.support.gateway_fake import API_KEY, FakeGateway, Fault, serving
from tests.unit.sdk.conftest import Clock


async def spawned(client: Client, fake: FakeGateway, script: Script) -> Process:
    fake.processes.scripts["x"] = script
    return await (await client.create("python")).spawn("x", exec_id="e1")


@given(
    sizes=st.tuples(st.integers(0, 300_000), st.integers(0, 50_000)),
    cuts=st.lists(st.integers(0, 200_000), max_size=6),
    lost=st.integers(0, 60_000),
    message_bytes=st.sampled_from([1_000, 65_536]),
    code=st.integers(0, 255),
)
async def test_cuts_lose_nothing_and_count_nothing_twice(
    sizes: tuple[int, int], cuts: list[int], lost: int, message_bytes: int, code: int
) -> None:
    data = random.Random(sizes[0]).randbytes(sum(sizes))
    stdout, stderr = data[: sizes[0]], data[sizes[0] :]
    async with serving() as fake, Client(fake.url, API_KEY) as client:
        fake.processes.cuts.extend(cuts)
        fake.processes.message_bytes = message_bytes
        client.gateway._retries = type(client.gateway.retries)(sleep=Clock().sleep)
        process = await spawned(client, fake, Script(stdout, stderr, code))
        lost = min(lost, len(stdout))
        fake.processes.execs["e1"].kept_from[STDOUT] = lost
        came, erred = await process.read_both()
        result = await process.wait()
        assert came == stdout[lost:]
        assert process.stdout.gaps == ([Gap(0, lost)] if lost else [])
        assert len(came) + sum(gap.lost_bytes for gap in process.stdout.gaps) == result.stdout_total_bytes
        assert (erred, process.stderr.gaps, result.exit_code) == (stderr, [], code)
        assert (process.stdout.offset, process.stderr.offset) == sizes


async def test_stdin_is_whole_and_once_after_cuts(client: Client, fake: FakeGateway) -> None:
    data = os.urandom(3 * 2**20)
    process = await (await client.create("python")).spawn("cat")
    fake.processes.cuts.extend([50_000, 300_000, 0, 700_000])

    async def feed() -> None:
        for start in range(0, len(data), 300_000):
            await process.stdin.write(data[start : start + 300_000])
        await process.stdin.write_eof()

    async with process, asyncio.TaskGroup() as group:
        group.create_task(feed())
        assert await process.stdout.read() == data
    assert bytes(fake.processes.execs[process.exec_id].stdin) == data
    assert len(fake.processes.attaches) == 5


@pytest.mark.parametrize("begins", [b"a\xff", "ä"])
async def test_an_input_may_begin_with_the_start_and_go_on(
    client: Client, fake: FakeGateway, begins: bytes | str
) -> None:
    fake.real_execs = True
    sandbox = await client.create("python")
    async with await sandbox.spawn("cat", stdin=begins) as process:
        await process.stdin.write(b" and on")
        await process.stdin.write_eof()
        data = begins if isinstance(begins, bytes) else begins.encode()
        assert await process.stdout.read() == data + b" and on"
    for wrong in (b"x" * (2**20 + 1), 5):
        with pytest.raises(InvalidArgument, match="not True, False, or at most 1 MiB"):
            await sandbox.spawn("cat", stdin=wrong)  # type: ignore[arg-type]


async def test_stdin_waits_for_the_sandbox(client: Client, fake: FakeGateway) -> None:
    fake.processes.silent_acks = True
    process = await (await client.create("python")).spawn("cat >/dev/null")
    await process.stdin.write(bytes(2**20))
    writing = asyncio.ensure_future(process.stdin.write(b"more"))
    made = fake.processes.execs[process.exec_id]
    while len(made.stdin) < 2**20:
        await made.changed.wait()
    assert not writing.done()
    writing.cancel()
    await process.kill()
    assert (await process.wait()).end == "cancelled"
    with pytest.raises(Conflict, match="has ended"):
        await process.stdin.write(b"x")


async def test_what_nobody_read_is_fetched_when_somebody_does(client: Client, fake: FakeGateway) -> None:
    data = os.urandom(4 * UNREAD_BYTES)
    async with await spawned(client, fake, Script(data, b"e")) as process:
        assert (await process.wait()).exit_code == 0
        assert process.stdout.unread_bytes <= UNREAD_BYTES + fake.processes.message_bytes
        assert await process.read_both() == (data, b"e")
        assert process.stdout.gaps == []


async def test_what_the_sandbox_let_go_of_is_a_gap(client: Client, fake: FakeGateway) -> None:
    data = os.urandom(4 * UNREAD_BYTES)
    async with await spawned(client, fake, Script(data)) as process:
        await process.wait()
        fake.processes.execs["e1"].kept_from[STDOUT] = 3 * UNREAD_BYTES
        came = await process.stdout.read()
        (gap,) = process.stdout.gaps
        assert came == data[: gap.offset] + data[3 * UNREAD_BYTES :]
        assert gap.offset + gap.lost_bytes == 3 * UNREAD_BYTES


async def test_a_slow_reader_holds_up_the_command_and_loses_nothing(client: Client, fake: FakeGateway) -> None:
    data = os.urandom(8 * UNREAD_BYTES)
    async with await spawned(client, fake, Script(data)) as process:
        came = bytearray(await process.stdout.next_bytes())
        async with asyncio.TaskGroup() as group:
            group.create_task(process.wait())
            while part := await process.stdout.next_bytes():
                came += part
                assert process.stdout.unread_bytes <= UNREAD_BYTES + fake.processes.message_bytes
                for _ in range(20):
                    await asyncio.sleep(0)
        assert bytes(came) == data
    assert len(fake.processes.attaches) == 1


async def test_a_line_without_end_is_bounded(client: Client, fake: FakeGateway) -> None:
    async with await spawned(client, fake, Script(b"x" * (2**20 + 2**17))) as process:
        lines = [line async for line in process.stdout.lines()]
    assert len(lines) == 2
    assert sum(map(len, lines)) == 2**20 + 2**17


async def test_a_gateway_that_stays_away_is_told_with_the_way_back(
    client: Client, fake: FakeGateway, clock: Clock
) -> None:
    process = await spawned(client, fake, Script(b"x" * 10, hold=True))
    assert await process.stdout.next_bytes() == b"x" * 10
    fake.fail("attach", *[Fault("draining")] * 1000)
    await process.aclose()
    with pytest.raises(StreamInterrupted) as caught:
        await process.wait()
    assert "stdout_offset=10" in caught.value.hint
    assert caught.value.is_infra
    assert 50 <= sum(clock.waits) <= 60


async def test_a_problem_in_the_stream_is_raised_and_a_passing_one_is_not(client: Client, fake: FakeGateway) -> None:
    process = await spawned(client, fake, Script(b"x"))
    fake.processes.problems.append({"code": "draining", "detail": "going"})
    assert await process.stdout.read() == b"x"
    other = await spawned(client, fake, Script(b"x"))
    fake.processes.problems.append({"code": "sandbox_lost", "detail": "gone"})
    with pytest.raises(SandboxLost) as caught:
        await other.wait()
    assert caught.value.sandbox_id


async def test_all_that_wait_hear_of_a_failure(client: Client, fake: FakeGateway) -> None:
    process = await spawned(client, fake, Script(b"", hold=True))
    fake.fail("attach", Fault("sandbox_lost"))
    failures = await asyncio.gather(
        process.wait(), process.stdout.read(), process.stderr.read(), return_exceptions=True
    )
    assert [type(failure) for failure in failures] == [SandboxLost] * 3
    assert fake.count("GET", "/attach") == 1


async def test_a_cancelled_iteration_kills(client: Client, fake: FakeGateway) -> None:
    reading = asyncio.Event()

    async def body() -> None:
        async with await spawned(client, fake, Script(b"x", hold=True)) as process:
            async for _ in process.stdout:
                reading.set()

    running = asyncio.ensure_future(body())
    await reading.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (fake.processes.execs["e1"].result or {})["end"] == "cancelled"


async def test_a_cancelled_spawn_kills(client: Client, fake: FakeGateway) -> None:
    sandbox = await client.create("python")
    fake.processes.hold_starts = True
    spawning = asyncio.ensure_future(sandbox.spawn("sleep 100", exec_id="e1"))
    await fake.processes.started.wait()
    spawning.cancel()
    with pytest.raises(asyncio.CancelledError):
        await spawning
    assert (fake.processes.execs["e1"].result or {})["end"] == "cancelled"


async def test_an_expired_token_is_renewed_for_an_attach(client: Client, fake: FakeGateway) -> None:
    process = await spawned(client, fake, Script(b"x"))
    fake.expire_tokens()
    assert await process.stdout.read() == b"x"
    assert fake.count("POST", "/token") == 1


async def test_signals_go_once_and_sizes_again(client: Client, fake: FakeGateway) -> None:
    sandbox = await client.create("python")
    fake.processes.scripts["x"] = Script(hold=True)
    process = await sandbox.spawn("x", terminal=(80, 24))
    assert fake.bodies[-1]["terminal"] == {"columns": 80, "rows": 24}
    made = fake.processes.execs[process.exec_id]
    await process.signal(15, tree=True)
    fake.fail("signal", Fault(after=True))
    with pytest.raises(StreamInterrupted):
        await process.signal(2)
    assert made.signals == [(15, True), (2, False)]
    odd: Any = "a"
    for columns, rows in ((0, 30), (100, 65_536), (odd, 30)):
        with pytest.raises(InvalidArgument):
            await process.resize(columns, rows)
    for terminal in (True, "80x24", (80,)):
        with pytest.raises(InvalidArgument, match="not its columns and rows"):
            await sandbox.spawn("x", terminal=terminal)  # type: ignore[arg-type]
    await process.resize(100, 30)
    await _until(made, lambda: len(made.sizes) == 1)
    await process.aclose()
    await process.stdin.write("x")
    await _until(made, lambda: made.sizes == [(100, 30), (100, 30)])
    for number in (0, 65):
        with pytest.raises(InvalidArgument):
            await process.signal(number)
    await process.kill()


async def _until(made: FakeExec, done: Any) -> None:
    while not done():
        await made.changed.wait()


@pytest.mark.parametrize("message", [b"", b"\x01short", b"\x05" + bytes(8)])
def test_a_message_that_is_none_is_the_platforms_fault(message: bytes) -> None:
    with pytest.raises(Internal):
        frames.read(message)


@pytest.mark.parametrize(
    "options",
    [
        {"terminal": (0, 1)},
        {"umask": 0o1000},
        {"exec_id": ""},
        {"max_stderr_bytes": 0},
        {"timeout": -1},
        {"stdout_offset": -1},
        {"stderr_offset": -1},
    ],
)
async def test_nonsense_is_refused_before_anything_is_sent(
    client: Client, fake: FakeGateway, options: dict[str, Any]
) -> None:
    sandbox = await client.create("python")
    sent = len(fake.requests)
    call = sandbox.processes.attach if {"stdout_offset", "stderr_offset"} & options.keys() else sandbox.spawn
    with pytest.raises(InvalidArgument):
        await call("x", **options)
    assert len(fake.requests) == sent
