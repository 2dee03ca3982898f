"""Shell sessions: what a command changes is there for the next one."""

from __future__ import annotations

import pytest

from rollbox import Sandbox
from rollbox.errors import Conflict
from tests.support.waiting import succeeds, until


@pytest.mark.core
async def test_directory_variables_and_functions_stay(shared: Sandbox) -> None:
    async with await shared.shell(env={"B": "given"}) as shell:
        await shell.run("cd /usr/bin && export A='x y' && f() { echo f:$1; }")
        result = await shell.run('pwd; echo "$A" $B; f 1')
        assert (result.stdout, result.exit_code) == ("/usr/bin\nx y given\nf:1\n", 0)


async def test_each_command_has_its_own_code_and_streams(shared: Sandbox) -> None:
    async with await shared.shell() as shell:
        result = await shell.run("echo out; echo err >&2; (exit 12)")
        assert (result.stdout, result.stderr, result.exit_code) == ("out\n", "err\n", 12)
        assert (await shell.run("echo $?")).stdout == "12\n"
        assert (await shell.run("printf 'no newline'")).stdout == "no newline"
        assert (await shell.run("if true; then\n  echo many lines\nfi")).stdout == "many lines\n"
        assert (await shell.run("'")).exit_code != 0
        assert (await shell.run("cat")).exit_code == 0
        assert (await shell.run("echo still here")).stdout == "still here\n"


async def test_a_timeout_kills_the_command_and_keeps_the_shell(shared: Sandbox) -> None:
    async with await shared.shell() as shell:
        await shell.run("cd /tmp; X=kept; sleep 7200 &")
        result = await shell.run("echo before; sleep 7201", timeout=5)
        assert (result.end, result.stdout) == ("deadline", "before\n")
        assert (await shell.run("pwd; echo $X")).stdout == "/tmp\nkept\n"
        assert (await shared.exec("pgrep -f 'sleep 720[1]'")).exit_code == 1
        assert (await shared.exec("pgrep -f 'sleep 720[0]'")).exit_code == 0
    # The block waits 2 s for the kill; on a busy machine it may come behind that.
    await until(lambda: succeeds(shared, "! pgrep -f 'sleep 720[0]'"))


async def test_large_output_comes_whole_or_its_end_with_a_mark(shared: Sandbox) -> None:
    async with await shared.shell(max_output_bytes=100_000) as shell:
        result = await shell.run("head -c 5000000 /dev/zero | tr '\\0' a; echo end")
        assert (result.stdout_truncated, result.stdout_total_bytes) == (True, 5_000_004)
        assert result.stdout_bytes == b"a" * (100_000 - 4) + b"end\n"


async def test_exit_ends_the_shell_and_its_code_is_told(shared: Sandbox) -> None:
    async with await shared.shell() as shell:
        assert (await shell.run("echo bye; exit 8")).exit_code == 8
        assert shell.ended
        with pytest.raises(Conflict) as ended:
            await shell.run("echo more")
    assert "8" in ended.value.detail


async def test_a_shell_of_another_user(shared: Sandbox) -> None:
    async with await shared.shell(user="nobody", cwd="/tmp") as shell:
        assert (await shell.run("id -un; pwd")).stdout == "nobody\n/tmp\n"
