"""Shells on a terminal, with the real shells of this machine behind a fake gateway."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rollbox import Client, TerminalShell
from rollbox import terminal_shell as module
from rollbox.errors import Conflict, InvalidArgument
from tests.support.eventually import LIMIT_S, eventually
from tests.support.gateway_fake import FakeGateway

SOON_S = 0.5


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a shell on a busy machine more time to be ready again before it is killed."""
    monkeypatch.setattr(module, "RETURN_LIMIT_S", LIMIT_S)


def is_empty(folder: Path) -> bool:
    return not any(folder.iterdir())


@pytest.fixture(params=["bash", "sh"])
async def shell(client: Client, fake: FakeGateway, request: pytest.FixtureRequest) -> AsyncIterator[TerminalShell]:
    fake.real_execs = True
    fake.missing_commands = set() if request.param == "bash" else {"bash"}
    async with await (await client.create("python")).shell(terminal=(90, 30)) as made:
        yield made


async def test_commands_of_many_lines_and_any_length_are_one_command(shell: TerminalShell) -> None:
    text = "it's \u00e4 'long' \\ \"line\" $HOME `x` !! " * 200
    result = await shell.run(f"if true; then\n  cat <<'end'\n{text}\nend\nfi\necho second")
    assert result.stdout == f"{text}\nsecond\n"


async def test_the_prompt_is_the_shells_own(shell: TerminalShell) -> None:
    assert (await shell.run('PS1="(venv) $PS1"; false')).exit_code == 1
    assert (await shell.run("PS1=x; echo on")).stdout == "on\n"
    assert (await shell.run("echo still")).stdout == "still\n"


async def test_what_does_not_come_is_told_and_what_came_stays(shell: TerminalShell) -> None:
    await shell.send("echo here; cat\n")
    with pytest.raises(TimeoutError):
        await shell.expect("never", timeout=SOON_S)
    assert (await shell.expect("here\n")).endswith("here\n")
    with pytest.raises(InvalidArgument):
        await shell.expect("(")
    await shell.interrupt()
    assert (await shell.run("echo on")).stdout == "on\n"


async def test_its_prompt_ends_a_wait_where_that_is_asked_for(shell: TerminalShell) -> None:
    await shell.send("echo one; (exit 3)\n")
    assert (await shell.expect("never", prompt=True, timeout=LIMIT_S)).endswith("one\n")
    assert (await shell.run("(exit $?)")).exit_code == 3
    await shell.send("echo two; cat\n")
    assert (await shell.expect("two\n", prompt=True, timeout=LIMIT_S)).endswith("two\n")
    await shell.send("\x04")
    assert "two" not in await shell.expect(None, prompt=True, timeout=None)
    with pytest.raises(InvalidArgument, match="neither a pattern nor a prompt"):
        await shell.expect(None)


@pytest.mark.parametrize("command", ["cat", "sleep 10000; echo no", "trap '' INT; sleep 10000; echo no"])
async def test_an_interrupt_brings_the_shell_back(shell: TerminalShell, command: str) -> None:
    await shell.run("A=kept")
    await shell.send(f'echo began; sh -c "{command}"\n')
    await shell.expect("began\n")
    assert "no" not in await shell.interrupt(timeout=SOON_S)
    assert (await shell.run("echo $A")).stdout == "kept\n"


@pytest.mark.parametrize("command", ["echo '", 'echo "', "echo `", "(", "kill -INT $$; echo no", "${nothing?}"])
async def test_a_line_that_the_shell_discards_is_answered(shell: TerminalShell, command: str) -> None:
    await shell.run("A=kept")
    result = await shell.run(command)
    assert not result.ok
    assert "no\n" not in result.stdout
    assert (await shell.run("echo $A")).stdout == "kept\n"


@pytest.mark.parametrize("command", ["exec 2>&-", "exec 2>/dev/null", "exec 2> >(cat >/dev/null)", "stty echo"])
async def test_its_prompt_comes_wherever_its_stderr_goes(shell: TerminalShell, command: str) -> None:
    await shell.run(command)
    assert (await shell.run("echo on; (exit 4)")).exit_code == 4
    result = await shell.run("echo on; sleep 10000; echo no", timeout=SOON_S)
    assert (result.end, result.stdout.partition("\n")[0]) == ("deadline", "on")
    assert (await shell.run("echo still")).stdout == "still\n"


@pytest.mark.parametrize("command", ["__rollbox_prompt() { :; }", "unset -f __rollbox_prompt"])
async def test_one_that_cannot_answer_any_more_is_told_so(shell: TerminalShell, command: str) -> None:
    with pytest.raises(Conflict, match="no longer answers"):
        await shell.run(command)
    assert shell.ended


async def test_its_commands_are_in_no_history_file(shell: TerminalShell) -> None:
    assert (await shell.run("echo ${HISTFILE-none}")).stdout == "none\n"


@pytest.mark.parametrize(
    "command",
    [
        "echo began; sleep 10000; echo no",
        "echo began; while :; do sleep 10000; done",
        "echo began; cat; echo no",
        "echo began; x=$(sleep 10000); echo no",
        "echo began; (sleep 10000; sleep 10000) | cat; echo no",
    ],
)
async def test_a_timeout_ends_the_command_and_keeps_the_shell(shell: TerminalShell, command: str) -> None:
    await shell.run("A=kept")
    result = await shell.run(command, timeout=SOON_S)
    assert (result.end, result.exit_code, result.shell_ended) == ("deadline", None, False)
    assert "no" not in result.stdout
    assert (await shell.run("echo $A")).stdout == "kept\n"


async def test_a_cancelled_run_ends_the_command_and_keeps_the_shell(shell: TerminalShell, tmp_path: Path) -> None:
    running = asyncio.ensure_future(shell.run(f"touch {tmp_path}/began; sleep 10000; echo no"))
    await eventually((tmp_path / "began").exists)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (await shell.run("echo on")).stdout == "on\n"


@pytest.mark.parametrize("command", ["read x", "cat", "sleep 10000; echo no", "sh -c 'trap \"\" INT; sleep 10000'"])
async def test_an_interrupt_ends_a_run_of_another_task(shell: TerminalShell, command: str) -> None:
    await shell.run("A=kept")
    running = asyncio.create_task(shell.run(f"echo began; {command}"))
    await shell.expect("began\n", timeout=LIMIT_S)
    assert await shell.interrupt(timeout=SOON_S) == ""
    result = await running
    assert (result.end, result.ok) == ("exited", False)
    assert "no\n" not in result.stdout
    assert (await shell.run("echo $A")).stdout == "kept\n"


async def test_nothing_of_a_command_goes_on_that_ignores_its_end(shell: TerminalShell, tmp_path: Path) -> None:
    late = await shell.run(f"trap '' INT; sleep 10000; touch {tmp_path}/went-on", timeout=SOON_S)
    assert (late.end, late.shell_ended, is_empty(tmp_path)) == ("deadline", True, True)
    with pytest.raises(Conflict, match="no longer answers.*SIGINT"):
        await shell.run("true")


async def test_exit_ends_it_and_is_told(shell: TerminalShell) -> None:
    result = await shell.run("echo bye; exit 3")
    # bash on a terminal says that it exits.
    assert (result.exit_code, result.stdout.splitlines()[0], result.shell_ended) == (3, "bye", True)
    for call in (shell.run("true"), shell.send("x"), shell.interrupt()):
        with pytest.raises(Conflict, match="exited with code 3"):
            await call


@pytest.mark.parametrize("command", ["", " ", "a\0b", "a\x03", "\udcff"])
async def test_nonsense_is_refused(shell: TerminalShell, command: str) -> None:
    with pytest.raises(InvalidArgument):
        await shell.run(command)


async def test_a_code_that_is_no_failure_ends_no_shell(shell: TerminalShell) -> None:
    await shell.run("set -e")
    for command in ("! true", "false && true", "! true # why", "! true \\"):
        assert (await shell.run(command)).exit_code == 1
        assert (await shell.run("echo $?")).stdout == "1\n"
    assert (await shell.run("cat <<end\nhere\nend")).stdout == "here\n"
    assert (await shell.run("false; echo no")).shell_ended
