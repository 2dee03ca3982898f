"""Processes that a program talks to: streams, signals, and coming back to them from anywhere."""

from __future__ import annotations

import asyncio
import hashlib
import signal
from uuid import uuid4

import pytest

from rollbox import Client, Gap, Sandbox
from rollbox.errors import Conflict, ExecNotFound, InvalidArgument
from tests.support.stack import Product
from tests.support.waiting import succeeds, until


@pytest.mark.core
async def test_both_streams_come_apart_and_as_they_are_written(shared: Sandbox) -> None:
    command = "echo out; echo err >&2; read line; echo got $line; exit 3"
    async with await shared.spawn(command) as process:
        assert process.pid
        assert await anext(process.stdout.lines()) == "out"
        assert await anext(process.stderr.lines()) == "err"
        await process.stdin.write("more\n")
        assert [line async for line in process.stdout.lines()] == ["got more"]
        result = await process.wait()
    assert (result.end, result.exit_code) == ("exited", 3)
    assert (result.stdout_total_bytes, result.stderr_total_bytes) == (len("out\ngot more\n"), len("err\n"))


@pytest.mark.core
async def test_input_goes_in_to_its_end(shared: Sandbox) -> None:
    data = bytes(range(256)) * 20_000
    async with await shared.spawn(["sha256sum"]) as process:
        for start in range(0, len(data), 300_000):
            await process.stdin.write(data[start : start + 300_000])
        await process.stdin.write_eof()
        assert (await process.stdout.read()).split()[0].decode() == hashlib.sha256(data).hexdigest()
        with pytest.raises(Conflict):
            await process.stdin.write(b"late")


async def test_without_input_it_sees_the_end_of_the_file(shared: Sandbox) -> None:
    async with await shared.spawn(["cat"], stdin=False) as process:
        assert (await process.wait()).exit_code == 0


async def test_input_that_nobody_takes_is_told(shared: Sandbox) -> None:
    async with await shared.spawn("exec <&-; sleep 600") as process:
        with pytest.raises(Conflict):
            await process.stdin.write(b"x" * 2**23)


async def test_text_is_put_together_whatever_the_messages_cut(shared: Sandbox) -> None:
    async with await shared.spawn(["python3", "-c", "print('é' * 200_000, end='')"]) as process:
        text = "".join([part async for part in process.stdout.text()])
    assert text == "é" * 200_000


@pytest.mark.core
async def test_signals_reach_the_process_or_all_of_them(shared: Sandbox) -> None:
    async with await shared.spawn("trap 'echo asked; exit 4' TERM; echo ready; while :; do sleep 0.1; done") as process:
        lines = process.stdout.lines()
        assert await anext(lines) == "ready"
        await process.signal(signal.SIGTERM)
        assert await anext(lines) == "asked"
        assert (await process.wait()).exit_code == 4
        with pytest.raises((Conflict, ExecNotFound)):
            await process.signal(signal.SIGTERM)
    async with await shared.spawn("sleep 7001 & sleep 7002 & wait") as process:
        await until(lambda: succeeds(shared, "pgrep -f 'sleep 700[2]'"))
        await process.signal(signal.SIGKILL, tree=True)
        assert (await process.wait()).signal == signal.SIGKILL
        await until(lambda: succeeds(shared, "! pgrep -f 'sleep 700[12]'"))
    with pytest.raises(InvalidArgument):
        await process.signal(65)


async def test_a_block_that_is_left_kills_and_a_detached_one_does_not(shared: Sandbox) -> None:
    async with await shared.spawn("sleep 7003"):
        pass
    # The block waits 2 s for the kill; on a busy machine it may come behind that.
    await until(lambda: succeeds(shared, "! pgrep -f 'sleep 700[3]'"))
    async with await shared.spawn("sleep 7004") as process:
        exec_id = process.detach()
    await until(lambda: succeeds(shared, "pgrep -f 'sleep 700[4]'"))
    async with await shared.processes.attach(exec_id) as again:
        await again.kill()
        assert (await again.wait()).end == "cancelled"


async def test_the_list_tells_what_runs_and_what_ended(shared: Sandbox) -> None:
    name = f"listed-{uuid4().hex[:8]}"
    async with await shared.spawn(["sh", "-c", "echo hello; exec sleep 600"], exec_id=name) as process:
        assert await anext(process.stdout.lines()) == "hello"
        running = next(item for item in await shared.processes.list() if item.exec_id == name)
        assert (running.running, running.pid, running.argv[0]) == (True, process.pid, "sh")
        assert (running.stdout_bytes, running.ended_at_ms) == (6, None)
        text = await shared.spawn("sleep 600", exec_id=f"{name}-text")
        assert next(one for one in await shared.processes.list() if one.exec_id == f"{name}-text").argv == ["sleep 600"]
        await text.kill()
        await process.kill()
    ended = next(item for item in await shared.processes.list() if item.exec_id == name)
    assert (ended.running, ended.end) == (False, "cancelled")
    assert ended.started_at_ms < (ended.ended_at_ms or 0)


async def test_the_same_exec_id_is_the_same_process(shared: Sandbox) -> None:
    name = f"once-{uuid4().hex[:8]}"
    command = f"echo x >> /tmp/{name}; wc -l < /tmp/{name}"
    first = await shared.spawn(command, exec_id=name)
    second = await shared.spawn(command, exec_id=name)
    assert first.pid == second.pid
    assert [await process.stdout.read() for process in (first, second)] == [b"1\n"] * 2
    with pytest.raises(Conflict):
        await shared.spawn("echo other", exec_id=name)
    for process in (first, second):
        await process.aclose()


@pytest.mark.core
async def test_another_program_goes_on_where_one_stopped(stack: Product, shared: Sandbox) -> None:
    program = "import sys\nfor n in range(20_000):\n  print(n)\n  sys.stdout.flush()"
    process = await shared.spawn(["python3", "-c", program])
    seen = b""
    async for part in process.stdout:
        seen += part
        if len(seen) > 5_000:
            break
    exec_id, offset = process.detach(), process.stdout.offset
    await process.aclose()
    async with (
        Client(stack.url, stack.api_key) as other,
        await (await other.connect(shared.id)).processes.attach(exec_id, stdout_offset=offset) as again,
    ):
        seen += await again.stdout.read()
        assert again.stdout.gaps == []
        assert (await again.wait()).exit_code == 0
    assert seen.split() == [str(n).encode() for n in range(20_000)]


async def test_the_end_of_one_that_ended_is_told_again(shared: Sandbox) -> None:
    name = f"ended-{uuid4().hex[:8]}"
    await shared.exec("echo out; echo err >&2; exit 9", exec_id=name)
    for _ in range(2):
        async with await shared.processes.attach(name) as again:
            assert await again.read_both() == (b"out\n", b"err\n")
            assert (await again.wait()).exit_code == 9


async def test_what_the_ring_has_let_go_of_is_an_explicit_gap(shared: Sandbox) -> None:
    name = f"gap-{uuid4().hex[:8]}"
    result = await shared.exec(
        ["sh", "-c", "head -c 100000 /dev/zero; printf end"], exec_id=name, max_output_bytes=1_000
    )
    assert result.stdout_total_bytes == 100_003
    async with await shared.processes.attach(name) as again:
        kept = await again.stdout.read()
        assert again.stdout.gaps == [Gap(0, 100_003 - len(kept))]
        assert kept[-1_000:] == b"\0" * 997 + b"end"
    async with await shared.processes.attach(name, stdout_offset=100_000) as again:
        assert (await again.stdout.read(), again.stdout.gaps) == (b"end", [])


async def test_beyond_what_was_written_there_is_nothing_and_nothing_is_made_up(shared: Sandbox) -> None:
    name = f"beyond-{uuid4().hex[:8]}"
    await shared.exec("printf 12345", exec_id=name)
    async with await shared.processes.attach(name, stdout_offset=1_000) as again:
        assert (await again.stdout.read(), again.stdout.gaps) == (b"", [])
        assert (await again.wait()).stdout_total_bytes == 5


async def test_what_does_not_run_and_never_ran_is_told(shared: Sandbox) -> None:
    with pytest.raises(ExecNotFound):
        await shared.processes.attach("never-was")
    with pytest.raises(InvalidArgument) as refused:
        await shared.spawn(["no-such-command"])
    assert refused.value.details["reason"] == "command_not_found"


async def test_a_reader_that_stops_for_a_while_loses_nothing(shared: Sandbox) -> None:
    """The command waits for it, as on a pipe."""
    async with await shared.spawn(["head", "-c", "50000000", "/dev/zero"]) as process:
        assert await anext(process.stdout)
        await asyncio.sleep(2)  # speed: nothing is lost, however long it stops
        first = process.stdout.offset
        rest = sum([len(part) async for part in process.stdout])
        assert (first + rest, process.stdout.gaps) == (50_000_000, [])


async def test_a_background_server_s_output_is_let_go_of_at_once(shared: Sandbox) -> None:
    command = ["head", "-c", "50000000", "/dev/zero"]
    async with await shared.spawn(command, output_waits=False, max_output_bytes=1_000_000) as process:
        assert (await process.wait()).stdout_total_bytes == 50_000_000


@pytest.mark.long
async def test_a_long_silence_is_no_end(shared: Sandbox) -> None:
    """Longer than both sides wait for heartbeats: those keep it."""
    async with await shared.spawn("sleep 17; echo woke") as process:
        assert [line async for line in process.stdout.lines()] == ["woke"]


async def test_what_has_an_orphan_grace_ends_with_its_client_and_the_rest_stays(
    stack: Product, shared: Sandbox
) -> None:
    async with Client(stack.url, stack.api_key) as client:
        sandbox = await client.connect(shared.id)
        mortal = await sandbox.spawn("echo here; sleep 600", orphan_grace=1)
        other = await sandbox.spawn("echo here; sleep 600")
        assert (await mortal.stdout.readline(), await other.stdout.readline()) == ("here", "here")

    async def ended() -> bool:
        return {one.exec_id: one.end for one in await shared.processes.list()}[mortal.exec_id] == "cancelled"

    await until(ended)
    left = await shared.processes.attach(other.exec_id)
    assert await left.stdout.readline() == "here"
    await left.kill()
