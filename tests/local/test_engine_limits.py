"""Limits on the engine bite on the command, and the sandbox lives on."""

from __future__ import annotations

from rollbox import Sandbox


async def test_memory_above_the_limit_ends_as_oom_killed(sandbox: Sandbox) -> None:
    result = await sandbox.exec(["python3", "-c", "x = bytearray(1 << 30)\nfor i in range(0, 1 << 30, 4096): x[i] = 1"])
    assert result.end == "oom_killed"
    assert result.oom_killed
    assert (await sandbox.exec("echo alive")).stdout == "alive\n"


async def test_memory_above_the_limit_in_a_child_of_the_shell(sandbox: Sandbox) -> None:
    result = await sandbox.exec("python3 -c 'x = bytearray(1 << 30)'; exit $?")
    assert result.end == "oom_killed"


async def test_memory_above_the_limit_in_a_shell_reads_the_same_and_the_shell_lives_on(sandbox: Sandbox) -> None:
    async with await sandbox.shell() as shell:
        assert (await shell.run("sh -c 'kill -9 $$'")).exit_code == 137
        result = await shell.run("X=kept; python3 -c 'x = bytearray(1 << 30)'")
        assert (result.end, result.exit_code, result.shell_ended) == ("oom_killed", None, False)
        assert (await shell.run("echo $X")).stdout == "kept\n"
    async with await sandbox.shell(terminal=True) as shell:
        assert (await shell.run("python3 -c 'x = bytearray(1 << 30)'")).end == "oom_killed"
