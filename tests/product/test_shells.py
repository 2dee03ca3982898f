"""Shell sessions: what a command changes is there for the next one."""

from __future__ import annotations

import pytest

from rollbox import Sandbox, Shell, TerminalShell, shell_session
from rollbox import shell as shell_module
from rollbox.errors import Conflict, ExecFailed, InvalidArgument
from tests.support.waiting import succeeds, until


async def made_shell(sandbox: Sandbox, *, terminal: bool) -> Shell | TerminalShell:
    """A shell of another user, on a terminal or not."""
    if terminal:
        return await sandbox.shell(terminal=True, user="nobody", cwd="/tmp")
    return await sandbox.shell(user="nobody", cwd="/tmp")


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
        assert (await shell.run("cat; echo it\\'s; cat <<end\nhere\nend")).stdout == "it's\nhere\n"
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


@pytest.mark.parametrize(
    "detached",
    [
        "setsid sleep 7210 &",
        "(setsid sh -c 'sleep 7210 & wait' &)",
        "nohup sleep 7210 >/dev/null 2>&1 & disown",
        "( (while :; do sleep 7210; done) & )",
    ],
)
async def test_a_timeout_kills_what_the_command_has_detached(shared: Sandbox, detached: str) -> None:
    async with await shared.shell(user="nobody", cwd="/tmp") as shell:
        await shell.run("setsid sleep 7211 &")
        assert (await shell.run(f"{detached}\nsleep 7212", timeout=3)).timed_out
        left = await shared.exec("pgrep -fx 'sleep 721[02]' | wc -l; pgrep -fx 'sleep 7211' | wc -l")
        assert left.stdout.split() == ["0", "1"]
        assert (await shell.run("echo on")).stdout == "on\n"
    await until(lambda: succeeds(shared, "! pgrep -f 'sleep 721[1]'"))


@pytest.mark.parametrize("command", ["command() { :; }", "__rollbox_ask() { :; }"])
async def test_a_shell_that_cannot_answer_any_more_is_told_so(
    shared: Sandbox, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setattr(shell_module, "LOOK_AFTER_S", 0.1)
    async with await shared.shell() as shell:
        assert (await shell.run("sleep 0.5; echo waited for")).stdout == "waited for\n"
        with pytest.raises(Conflict, match="no longer answers"):
            await shell.run(command)
        assert shell.ended
        with pytest.raises(Conflict, match="no longer answers"):
            await shell.run("true")


@pytest.mark.parametrize("terminal", [False, True])
async def test_a_shell_that_stops_itself_goes_on(
    shared: Sandbox, monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    monkeypatch.setattr(shell_session, "LOOK_AFTER_S", 0.1)
    async with await made_shell(shared, terminal=terminal) as shell:
        assert (await shell.run("kill -STOP $$; echo on")).stdout == "on\n"


async def test_an_interrupt_at_any_moment_leaves_nothing_of_the_line(shared: Sandbox) -> None:
    async with await shared.shell(terminal=True, user="nobody", cwd="/tmp") as shell:
        await shell.run("X=kept; setsid sleep 7221 &")
        for line in ("sleep 7220; echo n''o\n", "true\n", "echo 'a\n") * 3:
            await shell.send(line)
            assert "no\n" not in await shell.interrupt()
            assert (await shell.run("echo $X")).stdout == "kept\n"
        left = await shared.exec("pgrep -fx 'sleep 7220' | wc -l; pgrep -fx 'sleep 7221' | wc -l")
        assert left.stdout.split() == ["0", "1"]
    await until(lambda: succeeds(shared, "! pgrep -f 'sleep 722[1]'"))


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("command", ["exec 2>&-", "echo '", "cd() { echo no >&2; }", "trap '' URG; false", "set -x"])
async def test_after_such_a_command_the_shell_answers_and_abandons_the_next(
    shared: Sandbox, command: str, terminal: bool
) -> None:
    async with await made_shell(shared, terminal=terminal) as shell:
        await shell.run(command)
        assert (await shell.run("(exit 4)")).exit_code == 4
        assert (await shell.run("sleep 7230; touch went-on", timeout=3)).timed_out
        assert (await shell.run("echo on; test ! -e went-on")).ok


async def test_a_command_has_input_directory_and_variables_of_its_own(shared: Sandbox) -> None:
    async with await shared.shell(user="nobody", cwd="/tmp") as shell:
        data = bytes(range(256)) * 4000
        result = await shell.run("sha256sum; pwd; echo $A; B=1", cwd="/usr", env={"A": "it's"}, stdin=data)
        wanted = (await shared.exec("sha256sum", stdin=data)).stdout
        assert result.stdout == f"{wanted}/usr\nit's\n"
        assert (await shell.run("pwd; echo ${A-}${B-}; ls -A /tmp | grep -c rollbox-stdin")).stdout == "/tmp\n\n0\n"
        with pytest.raises(InvalidArgument):
            await shell.run("true", cwd="/not/there")
        with pytest.raises(ExecFailed):
            await shell.run("false", check=True)
        assert (await shell.run("echo 123456", max_output_bytes=3)).stdout == "56\n"
        assert (await shell.run("echo 123456")).stdout == "123456\n"


async def test_a_shell_on_a_terminal_talks_to_programs(shared: Sandbox) -> None:
    async with await shared.shell(terminal=(90, 30), user="nobody", cwd="/tmp") as shell:
        result = await shell.run("stty size; X=kept; echo err >&2; (exit 5)")
        assert (result.exit_code, result.stdout) == (5, "30 90\nerr\n")
        await shell.send("python3 -q\n")
        await shell.expect(">>> ")
        await shell.send("print(6 * 7)\n")
        await shell.expect("42\n")
        await shell.send("print('by' + 'e'); exit()\n")
        assert "bye\n" in await shell.expect("never", prompt=True)
        assert (await shell.run("setsid sleep 7213 & sleep 7214", timeout=3)).timed_out
        assert (await shared.exec("pgrep -fx 'sleep 721[34]'")).exit_code == 1
        await shell.send("sleep 7215; echo no\n")
        assert "no" not in await shell.interrupt()
        assert (await shell.run("echo $X")).stdout == "kept\n"
        long = "x" * 20_000
        assert (await shell.run(f"echo {long}")).stdout == f"{long}\n"
        assert (await shell.run("exit 3")).shell_ended
