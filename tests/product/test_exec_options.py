"""Who a command is, what of its output is kept, and what it leaves behind."""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
from collections.abc import AsyncIterator

import pytest

from rollbox import Sandbox
from rollbox.errors import InvalidArgument
from tests.support.waiting import succeeds, until


@pytest.mark.parametrize(
    ("user", "seen"),
    [("nobody", "65534 65534"), ("65534", "65534 65534"), ("4242:4343", "4242 4343"), ("nobody:root", "65534 0")],
)
async def test_a_user_by_name_or_number(shared: Sandbox, user: str, seen: str) -> None:
    assert (await shared.exec("echo $(id -u) $(id -g)", user=user)).stdout.strip() == seen


async def test_numbers_need_no_user_files_and_names_do(shared: Sandbox) -> None:
    await shared.exec("mkdir /etc/aside && mv /etc/passwd /etc/group /etc/aside", check=True)
    try:
        assert (await shared.exec("echo $(id -u) $(id -g)", user="4242:4343")).stdout == "4242 4343\n"
        assert (await shared.exec("id -u")).stdout == "0\n"
        with pytest.raises(InvalidArgument) as refused:
            await shared.exec(["true"], user="nobody")
        assert refused.value.details["reason"] == "user_not_found"
    finally:
        await shared.exec("mv /etc/aside/* /etc && rmdir /etc/aside", check=True)


async def test_merged_output_comes_in_order(shared: Sandbox) -> None:
    result = await shared.exec("for n in 1 2 3; do echo out$n; echo err$n >&2; done", merge=True)
    assert (result.stdout.split(), result.stderr_bytes) == (["out1", "err1", "out2", "err2", "out3", "err3"], b"")
    assert (await shared.exec(["sh", "-c", "echo a >&2"], merge=True)).stdout == "a\n"
    with pytest.raises(InvalidArgument):
        await shared.exec("true", merge=True, max_stderr_bytes=1)


async def test_a_command_ran_for_at_least_as_long_as_it_slept(shared: Sandbox) -> None:
    results = [await shared.exec(["sleep", "0.02"]) for _ in range(50)]
    assert all(result.run_ms >= 20 for result in results)


async def test_the_mask_for_new_files(shared: Sandbox) -> None:
    assert (await shared.exec("umask; touch /tmp/m; stat -c %a /tmp/m", umask=0o077)).stdout == "0077\n600\n"
    assert (await shared.exec("rm /tmp/m; umask", umask=0)).stdout == "0000\n"
    with pytest.raises(InvalidArgument):
        await shared.exec(["true"], umask=0o1777)


async def test_the_first_or_the_last_bytes_are_kept_each_stream_for_itself(shared: Sandbox) -> None:
    command = "printf 0123456789; printf abcdefghij >&2"
    tail = await shared.exec(command, max_output_bytes=4)
    assert (tail.stdout, tail.stderr, tail.stdout_truncated, tail.stdout_total_bytes) == ("6789", "ghij", True, 10)
    head = await shared.exec(command, max_output_bytes=4, max_stderr_bytes=20, keep="head")
    assert (head.stdout, head.stderr) == ("0123", "abcdefghij")
    assert (head.stdout_truncated, head.stderr_truncated, head.stdout_total_bytes) == (True, False, 10)


async def test_an_argument_as_long_as_a_kernel_takes_and_one_byte_more(shared: Sandbox) -> None:
    longest = "x" * 131_071
    assert (await shared.exec(["sh", "-c", "echo ${#1}", "sh", longest])).stdout == "131071\n"
    with pytest.raises(InvalidArgument) as refused:
        await shared.exec(["true", longest + "x"])
    assert refused.value.details["reason"] == "arguments_too_large"


async def test_as_many_arguments_as_a_kernel_takes_and_more(shared: Sandbox) -> None:
    """Both kernels take 1.9 MiB, and neither 2.2 million bytes: Linux counts the variables too, gVisor apart."""
    count = ["sh", "-c", "echo $# ${#1}", "sh"]
    assert (await shared.exec([*count, *["x" * 99_614] * 20])).stdout == "20 99614\n"
    variables = {f"V{n}": "x" * 99_000 for n in range(10)}
    assert (await shared.exec([*count, *["x" * 99_000] * 10], env=variables)).stdout == "10 99000\n"
    for argv, env in (([*count, *["x" * 100_000] * 22], None), (count, {f"V{n}": "x" * 100_000 for n in range(22)})):
        with pytest.raises(InvalidArgument) as refused:
            await shared.exec(argv, env=env)
        assert refused.value.details["reason"] == "arguments_too_large"
        assert "kernel" in str(refused.value)
    assert (await shared.exec("echo alive")).stdout == "alive\n"


async def test_an_input_larger_than_any_request(shared: Sandbox) -> None:
    data = os.urandom(50 * 2**20)
    digest = hashlib.sha256(data).hexdigest()
    result = await shared.exec("sha256sum; echo err >&2; exit 3", stdin=data, max_output_bytes=70)
    assert (result.stdout.split()[0], result.stderr, result.exit_code) == (digest, "err\n", 3)
    assert not result.replayed
    assert (await shared.exec("head -c 10", stdin=io.BytesIO(data))).stdout_bytes == data[:10]
    # Of as much output as input only what was asked for is kept, and nothing else has come here.
    echoed = await shared.exec("cat", stdin=data, max_output_bytes=10)
    assert (echoed.stdout_bytes, echoed.stdout_total_bytes) == (data[-10:], len(data))


async def test_a_deadline_ends_what_still_waits_for_its_input(shared: Sandbox) -> None:
    async def silent() -> AsyncIterator[bytes]:
        yield b"begun"
        await asyncio.Event().wait()

    result = await shared.exec("cat", stdin=silent(), timeout=5)
    assert (result.end, result.stdout) == ("deadline", "begun")


async def test_the_first_bytes_of_much(shared: Sandbox) -> None:
    command = "echo first; head -c 30000000 /dev/zero"
    result = await shared.exec(command, keep="head", max_output_bytes=1_000)
    assert (result.stdout_bytes, result.stdout_total_bytes) == (b"first\n" + b"\0" * 994, 30_000_006)


async def test_the_call_ends_when_the_command_ends_not_its_daemon(shared: Sandbox) -> None:
    """Also when that holds the pipes, in whatever way it was left behind."""
    for leave in ("sleep 7300 &", "setsid sleep 7300 &", "nohup sleep 7300 2>&1 &", "(sleep 7300 & exec 1>&-) &"):
        async with asyncio.timeout(60):
            result = await shared.exec(f"{leave} echo started")
        assert (result.stdout, result.exit_code) == ("started\n", 0), leave
        # More than once: a process has no arguments to be found by for as long as it is between two programs.
        await until(lambda: succeeds(shared, "pkill -f 'sleep 730[0]'"))


async def test_a_timeout_gives_what_was_written(shared: Sandbox) -> None:
    result = await shared.exec("echo so far; echo and >&2; sleep 7301", timeout=5)
    assert (result.end, result.stdout, result.stderr) == ("deadline", "so far\n", "and\n")
    assert not await succeeds(shared, "pgrep -f 'sleep 730[1]'")


async def test_children_that_nobody_waits_for_are_reaped(shared: Sandbox) -> None:
    program = "import os, time\nfor _ in range(100):\n  if os.fork() == 0: os._exit(0)\ntime.sleep(0.3)"
    await shared.exec(["python3", "-c", program])
    await until(lambda: succeeds(shared, "! ps -eo stat | grep -q '^Z'"))
