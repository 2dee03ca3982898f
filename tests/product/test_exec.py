"""Commands in a real sandbox: what a user asks for is what happens."""

from __future__ import annotations

import asyncio
import hashlib

import pytest

from rollbox import Client, Sandbox
from rollbox.errors import Conflict, ExecDeadline, ExecFailed
from tests.support.images import IMAGE
from tests.support.waiting import succeeds, until


@pytest.mark.core
async def test_output_and_exit_code_come_apart(shared: Sandbox) -> None:
    result = await shared.exec("echo out; echo err >&2; exit 7")
    assert (result.end, result.exit_code) == ("exited", 7)
    assert (result.stdout, result.stderr) == ("out\n", "err\n")


async def test_argv_is_not_interpreted_by_a_shell(shared: Sandbox) -> None:
    result = await shared.exec(["printf", "%s|", "$HOME", "a b", ""])
    assert result.stdout == "$HOME|a b||"


@pytest.mark.core
async def test_a_command_gets_its_environment_directory_and_user(client: Client) -> None:
    async with await client.create(IMAGE, env={"A": "sandbox", "B": "sandbox"}, cwd="/usr") as sandbox:
        result = await sandbox.exec("echo $A $B $PWD $(id -u) $HOME", env={"B": "call"}, user="nobody")
        assert result.stdout.split()[:4] == ["sandbox", "call", "/usr", "65534"]
        assert (await sandbox.exec("pwd", cwd="/tmp")).stdout == "/tmp\n"
        assert (await sandbox.exec("id -u")).stdout == "0\n"
        assert (await sandbox.exec("id -u; id -g", user="1234:5678")).stdout == "1234\n5678\n"


@pytest.mark.core
async def test_a_megabyte_of_input_arrives_whole(shared: Sandbox) -> None:
    data = bytes(range(256)) * 4096
    result = await shared.exec("sha256sum", stdin=data)
    assert result.stdout.split()[0] == hashlib.sha256(data).hexdigest()


async def test_input_that_nobody_reads_does_not_block(shared: Sandbox) -> None:
    assert (await shared.exec(["true"], stdin=b"x" * 1_000_000)).ok


async def test_binary_output_is_kept_byte_for_byte(shared: Sandbox) -> None:
    program = "import sys; sys.stdout.buffer.write(bytes(range(256)) * 10)"
    result = await shared.exec(["python3", "-c", program])
    assert result.stdout_bytes == bytes(range(256)) * 10


async def test_text_that_is_no_utf8_loses_nothing(shared: Sandbox) -> None:
    result = await shared.exec(["printf", "%b", "caf\\0351 \\0303"])
    assert result.stdout_bytes == b"caf\xe9 \xc3"
    assert result.stdout == "caf\ufffd \ufffd"
    # A character that the limit cuts in two.
    cut = await shared.exec(["printf", "%b", "\\0342\\0202\\0254" * 4], max_output_bytes=7)
    assert cut.stdout_bytes == "€€€".encode()[-7:]
    assert cut.stdout_total_bytes == 12


async def test_a_hundred_megabytes_are_drained_and_the_last_bytes_kept(shared: Sandbox) -> None:
    program = (
        "import sys\nfor n in range(100): sys.stdout.write(chr(65 + n % 26) * 1_000_000)\nsys.stderr.write('done')"
    )
    result = await shared.exec(["python3", "-c", program], max_output_bytes=100_000)
    assert result.ok
    assert result.stdout_truncated
    assert not result.stderr_truncated
    assert result.stdout_total_bytes == 100_000_000
    assert result.stdout_bytes == b"V" * 100_000
    assert result.stderr == "done"


async def test_a_signal_is_told_as_such(shared: Sandbox) -> None:
    result = await shared.exec(["sh", "-c", "kill -SEGV $$"])
    assert (result.end, result.signal, result.exit_code) == ("signalled", 11, None)


@pytest.mark.core
async def test_the_deadline_kills_the_whole_tree_and_keeps_the_output(shared: Sandbox) -> None:
    # A grandchild in a session of its own, whose parent is gone: what a naive kill of a process group misses.
    command = "(setsid sh -c 'sleep 4321' >/dev/null 2>&1 &); echo before; sleep 4321"
    result = await shared.exec(command, timeout=5)
    assert (result.end, result.exit_code, result.stdout) == ("deadline", None, "before\n")
    assert result.timed_out
    seen = await shared.exec("ps -eo args | grep -c '[s]leep 4321'")
    assert seen.stdout == "0\n"


async def test_a_daemon_left_behind_does_not_hold_the_call(shared: Sandbox) -> None:
    async with asyncio.timeout(60):
        result = await shared.exec("sleep 6543 & echo started")
    assert result.stdout == "started\n"
    # It may not be a sleep yet, but the shell that is to become one.
    await until(lambda: succeeds(shared, "test $(pgrep -cf 'sleep 654[3]') = 1"))


@pytest.mark.core
async def test_the_same_exec_id_runs_once(shared: Sandbox) -> None:
    command = "echo x >> /tmp/runs; sleep 0.3; wc -l < /tmp/runs"
    first, second = await asyncio.gather(*(shared.exec(command, exec_id="once") for _ in range(2)))
    third = await shared.exec(command, exec_id="once")
    assert [r.stdout.strip() for r in (first, second, third)] == ["1", "1", "1"]
    assert third.replayed
    with pytest.raises(Conflict):
        await shared.exec("echo other", exec_id="once")


@pytest.mark.core
async def test_cancelling_the_call_kills_the_command(shared: Sandbox) -> None:
    call = asyncio.create_task(shared.exec("sleep 8765"))
    await until(lambda: succeeds(shared, "pgrep -f 'sleep 876[5]'"))
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    # The call waits 2 s for the kill; on a busy machine it may come behind that.
    await until(lambda: succeeds(shared, "! pgrep -f 'sleep 876[5]'"))


async def test_check_raises_with_the_result(shared: Sandbox) -> None:
    with pytest.raises(ExecFailed) as failed:
        await shared.exec("echo why >&2; exit 3", check=True)
    assert not failed.value.is_infra
    assert "why" in str(failed.value)
    with pytest.raises(ExecDeadline):
        await shared.exec("sleep 60", timeout=0.2, check=True)


@pytest.mark.core
async def test_sixty_four_at_once_in_one_sandbox(shared: Sandbox) -> None:
    results = await asyncio.gather(*(shared.exec(["echo", str(n)]) for n in range(64)))
    assert [r.stdout for r in results] == [f"{n}\n" for n in range(64)]


async def test_orphans_are_reaped(shared: Sandbox) -> None:
    await shared.exec("for n in $(seq 20); do (true &) ; done; sleep 0.2")
    await until(lambda: succeeds(shared, "! ps -eo stat | grep -q '^Z'"))
