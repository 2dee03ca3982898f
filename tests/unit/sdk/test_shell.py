"""Shells that keep their state, with the real shells of this machine behind a fake gateway."""

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rollbox import Client, Run, Shell
from rollbox import shell as shell_module
from rollbox.errors import Conflict, InvalidArgument
from rollbox.recording.recorder import COMMAND, IDLE
from tests.support.eventually import LIMIT_S, eventually
from tests.support.gateway_fake import FakeGateway

# Much shorter than the commands that it ends, which would run for hours.
SOON_S = 0.3


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a shell on a busy machine more time to be ready again before it is killed."""
    monkeypatch.setattr(Shell._make_ready, "__defaults__", (LIMIT_S, 1.0))


def is_empty(folder: Path) -> bool:
    return not any(folder.iterdir())


@pytest.fixture(params=["bash", "sh"])
async def shell(client: Client, fake: FakeGateway, request: pytest.FixtureRequest) -> AsyncIterator[Shell]:
    fake.real_execs = True
    fake.missing_commands = set() if request.param == "bash" else {"bash"}
    async with await (await client.create("python")).shell() as made:
        yield made


async def test_a_run_counts_the_commands_of_a_shell_and_not_its_idle_time(client: Client, fake: FakeGateway) -> None:
    fake.real_execs = True
    async with Run("r", show=False, client=client) as run:
        sandbox = await client.create("python")
        async with await sandbox.shell() as shell:
            recorder = run._begun()
            assert recorder._live[sandbox.id].state == IDLE
            busy = asyncio.create_task(shell.run(f"sleep {SOON_S}"))
            await eventually(lambda: recorder._live[sandbox.id].state == COMMAND)
            await busy
            await shell.run("false")
            assert recorder._live[sandbox.id].state == IDLE
    assert (recorder.execs["exited"], recorder.execs["non-zero"], recorder.execs["spawned"]) == (1, 1, 1)
    assert (await run.report()).tails["exec"].count == 2


@pytest.mark.parametrize("command", ["set -x; set +x", "set -v; set +v", "exec 2>&1; true", "if", "'", "nothing-here"])
async def test_the_shell_goes_on_after(shell: Shell, command: str) -> None:
    await shell.run(command)
    assert (await shell.run("echo on")).stdout == "on\n"


@pytest.mark.parametrize(
    "command",
    [
        "echo began; sleep 10000; echo no; sleep 10000",
        "echo began; while :; do sleep 10000; done",
        "echo began; while :; do :; done",
        "echo began; f() { while :; do g; done; }; g() { sleep 10000; }; f; echo no",
        "echo began; x=$(sleep 10000); echo no",
        "echo began; (sleep 10000; sleep 10000) | cat; echo no",
        "echo began; sh -c 'trap : TERM INT; while :; do sleep 10000 & wait; done'; echo no",
    ],
)
async def test_a_timeout_ends_the_command_and_keeps_the_shell(shell: Shell, command: str) -> None:
    await shell.run("A=kept")
    result = await shell.run(command, timeout=SOON_S)
    assert (result.end, result.exit_code) == ("deadline", None)
    # A machine under load may not print it in time; what must not run is never printed.
    assert result.stdout in ("began\n", "")
    assert (await shell.run("echo $A")).stdout == "kept\n"


async def test_a_timeout_before_the_shell_has_read_its_line_keeps_it_too(shell: Shell) -> None:
    await shell.run("A=kept")
    pid = int((await shell.run("echo $$")).stdout)
    # The interrupt at the timeout also continues the shell.
    os.kill(pid, signal.SIGSTOP)
    assert (await shell.run("sleep 10000; echo no", timeout=0.01)).stdout == ""
    assert (await shell.run("echo $A")).stdout == "kept\n"


async def test_a_shell_that_comes_back_late_does_not_tell_how_often_it_was_asked(shell: Shell) -> None:
    # Each interrupt ends only one of its sleeps.
    result = await shell.run("trap : URG INT; for n in 1 2 3; do sleep 10000; done", timeout=SOON_S)
    assert (result.end, result.stdout) == ("deadline", "")
    assert re.search("[0-9a-f]{32}", result.stderr) is None
    assert (await shell.run("echo on")).stdout == "on\n"


async def test_a_cancelled_run_ends_the_command_and_keeps_the_shell(shell: Shell, fake: FakeGateway) -> None:
    running = asyncio.ensure_future(shell.run("echo began >&2; sleep 10000; echo no"))
    made = fake.processes.execs[shell.exec_id]
    while b"began" not in made.outputs[2]:
        await made.changed.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    result = await shell.run("echo on")
    assert (result.stdout, result.stderr) == ("on\n", "")


async def test_runs_take_turns(shell: Shell) -> None:
    results = await asyncio.gather(*(shell.run(f"echo {number}") for number in range(5)))
    assert [result.stdout for result in results] == [f"{number}\n" for number in range(5)]


async def test_an_image_without_any_shell_is_told(client: Client, fake: FakeGateway) -> None:
    fake.missing_commands = {"bash", "sh"}
    with pytest.raises(InvalidArgument, match="neither bash nor sh"):
        await (await client.create("python")).shell()


@pytest.mark.parametrize("command", ["", " ", "a\0b", "\udcff"])
async def test_nonsense_is_refused(shell: Shell, command: str) -> None:
    with pytest.raises(InvalidArgument):
        await shell.run(command)


async def test_the_prompt_is_the_shells_own_whatever_a_command_sets(shell: Shell) -> None:
    assert (await shell.run('PS1="(venv) $PS1"; false')).exit_code == 1
    result = await shell.run("PS1=x; echo on")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "on\n", "")
    assert (await shell.run("echo still")).stderr == ""


async def test_a_shell_that_is_killed_since_it_does_not_answer_says_so(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Shell._make_ready, "__defaults__", (SOON_S, None))
    late = await shell.run("__rollbox_ask() { :; }; sleep 10000", timeout=SOON_S)
    assert (late.end, late.shell_ended) == ("deadline", True)
    assert shell.ended
    with pytest.raises(Conflict, match="no longer answers"):
        await shell.run("true")


@pytest.mark.parametrize(
    "command",
    [
        "set -n",
        "trap false DEBUG",
        "shopt -s extdebug; trap false DEBUG",
        "trap 'exec >&- 2>&-' DEBUG; :",
        'for fd in 3 4 5 6 7 8 9 10 11 12; do eval "exec $fd>&-"; done',
        "exec >&- 2>&-",
        "exec </dev/null",
        "ulimit -n 3",
        "ulimit -n 11",
        "printf() { :; }; eval() { :; }; export() { :; }; jobs() { :; }; return() { :; }",
        "alias eval=: command=:",
        "PROMPT_COMMAND=exit; PS1=; PS2=; set -o posix",
        "exec true",
    ],
)
async def test_whatever_a_command_takes_away_the_shell_answers_or_its_end_is_told(
    shell: Shell, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shell_module, "LOOK_AFTER_S", SOON_S)
    monkeypatch.setattr(shell_module, "RETURN_LIMIT_S", 2.0)
    told = ""
    try:
        result = await shell.run(command)
        told = "its end" if result.shell_ended else (await shell.run("echo on")).end
    except Conflict as refused:
        told = refused.detail
    assert told == "exited" if not shell.ended else told == "its end" or "no longer answers" in told


async def test_functions_and_aliases_in_place_of_builtins_change_neither_commands_nor_their_end(shell: Shell) -> None:
    names = "eval printf return exit cd trap read set break jobs"
    await shell.run(
        f'A=kept; for n in {names}; do eval "$n() {{ echo replaced; }}"; done 2>/dev/null; alias eval=false'
    )
    assert (await shell.run("command echo on")).stdout == "on\n"
    assert (await shell.run("sleep 10000; echo no", timeout=SOON_S)).stdout == ""
    assert (await shell.run("echo $A")).stdout == "kept\n"


async def test_a_trap_that_an_earlier_command_took_away_is_there_again(client: Client, fake: FakeGateway) -> None:
    fake.real_execs = True
    async with await (await client.create("python")).shell() as shell:
        await shell.run("trap '' URG; trap - DEBUG")
        assert (await shell.run("sleep 10000; echo no", timeout=SOON_S)).stdout == ""
        assert (await shell.run("echo on")).stdout == "on\n"


@pytest.mark.parametrize("trap", ["trap '' URG INT", "trap - URG; trap '' INT"])
async def test_nothing_of_a_command_goes_on_that_ignores_its_end(shell: Shell, tmp_path: Path, trap: str) -> None:
    late = await shell.run(f"{trap}; sleep 10000; touch {tmp_path}/went-on", timeout=SOON_S)
    assert (late.end, late.shell_ended, is_empty(tmp_path)) == ("deadline", True, True)
    with pytest.raises(Conflict, match="no longer answers.*SIG"):
        await shell.run("true")


async def test_comments_alone_succeed_and_others_see_the_code_before(shell: Shell) -> None:
    await shell.run("(exit 4)")
    assert (await shell.run("echo $?")).stdout == "4\n"
    await shell.run("(exit 4)")
    assert (await shell.run("# why\n\n  # not")).ok


async def test_output_that_goes_elsewhere_does_not_silence_the_shell(shell: Shell, tmp_path: Path) -> None:
    assert (await shell.run(f"exec >{tmp_path}/out 3>&- 2>&1; echo there")).stdout == ""
    assert (await shell.run("false")).exit_code == 1
    assert (tmp_path / "out").read_text().startswith("there\n")


async def test_a_death_for_lack_of_memory_is_told_as_an_exec_tells_it(shell: Shell, fake: FakeGateway) -> None:
    killed = "sh -c 'kill -9 $$'"
    assert (await shell.run(killed)).exit_code == 137
    fake.processes.execs[shell.exec_id].oom_kills = 1
    result = await shell.run(killed)
    assert (result.end, result.exit_code, result.signal, result.shell_ended) == ("oom_killed", None, 9, False)
    assert (await shell.run(killed)).exit_code == 137


@pytest.mark.parametrize("reason", ["cwd_not_found", "user_not_found"])
async def test_a_wrong_directory_or_user_is_no_missing_shell(
    client: Client, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    sandbox = await client.create("python")

    async def refuse(*_: object, **__: object) -> None:
        raise InvalidArgument("not there", details={"reason": reason})

    monkeypatch.setattr(sandbox, "spawn", refuse)
    with pytest.raises(InvalidArgument) as refused:
        await sandbox.shell()
    assert "bash" not in str(refused.value)


async def test_a_command_has_directory_and_variables_of_its_own(shell: Shell) -> None:
    await shell.run("cd /usr; A=shell; export B=shell")
    await shell.run("cd() { echo replaced >&2; }")
    result = await shell.run(
        'pwd; echo "$A $B"; sh -c \'echo "$C"\'; C=2; cd /', cwd="/tmp", env={"B": "it's", "C": "1"}
    )
    assert (result.stdout, result.exit_code) == ("/tmp\nshell it's\n1\n", 0)
    assert (await shell.run('pwd; echo "$A $B ${C-}"')).stdout == "/usr\nshell shell \n"
    assert (await shell.run("pwd; exit 3", cwd="bin")).exit_code == 3
    assert not shell.ended
    with pytest.raises(InvalidArgument) as refused:
        await shell.run("echo no", cwd="/not/there")
    assert refused.value.details["reason"] == "cwd_not_found"
    with pytest.raises(InvalidArgument):
        await shell.run("true", env={"A-B": "1"})


async def test_a_code_that_is_no_failure_ends_no_shell_and_no_trap_of_a_failure_sees_it(shell: Shell) -> None:
    await shell.run("set -e")
    for command in ("! true", "false && true", "[ -z a ] && echo no", "! true # why", "! true \\"):
        assert (await shell.run(command)).exit_code == 1
        assert (await shell.run("echo $?")).stdout == "1\n"
    assert (await shell.run("cat <<end\nhere\nend")).stdout == "here\n"
    assert (await shell.run("echo there; cat <<end\nhere")).stdout.rstrip() == "there\nhere"
    assert (await shell.run("false; echo no")).shell_ended


async def test_a_trap_of_failures_sees_those_of_commands_alone(client: Client, fake: FakeGateway) -> None:
    fake.real_execs = True
    async with await (await client.create("python")).shell() as shell:
        await shell.run("trap 'echo failed' ERR")
        said = [(await shell.run(command)).stdout for command in ("false", "! true", "(exit 3)", "true")]
        assert said == ["failed\n", "", "failed\n", ""]


@pytest.mark.parametrize("command", ["echo é中 '\"é\\n\"'", "printf '%s\\n' 'a\\bé'\"'\"", "é() { echo ö; }; é"])
async def test_text_beyond_ascii_reaches_the_shell_as_it_is(shell: Shell, command: str) -> None:
    seen = await shell.run(command)
    plain = await asyncio.create_subprocess_exec(shell._dialect.argv[0], "-c", command, stdout=asyncio.subprocess.PIPE)
    assert seen.stdout_bytes == (await plain.communicate())[0]


# A shell may show with `set -v` no more than the lines that it reads itself.
@pytest.mark.parametrize("setting", ["x", "v"])
async def test_a_trace_shows_the_command_and_nothing_of_the_shells_own(shell: Shell, setting: str) -> None:
    await shell.run(f"set -{setting}")
    shown = (await shell.run("echo on")).stderr
    assert re.fullmatch(r"(?:\++ )?echo on\n+", shown) or (setting, shown) == ("v", ""), shown
    # Also behind a line that has no end yet, and with another prefix.
    assert (await shell.run("printf err >&2")).stderr.endswith("err")
    assert "rollbox" not in (await shell.run("PS4='at '; (exit 3)")).stderr
    assert "rollbox" not in (await shell.run(f"set +{setting}")).stderr
    assert (await shell.run("echo off")).stderr == ""


@pytest.mark.parametrize(
    "command", ["true &&", "true |", "false || # why", "true | \\\n", "if true; then", "f()", "f( ) # x", "("]
)
async def test_a_command_without_an_end_is_an_error_of_syntax(shell: Shell, command: str) -> None:
    result = await shell.run(command)
    assert (result.exit_code, "rollbox" in result.stderr) == (2, False)
    assert result.stderr
    assert (await shell.run("echo on")).stdout == "on\n"
