"""Sessions: what a command changes is there for the next one, and programs are spoken to."""

from __future__ import annotations

import asyncio

import pytest
from swerex.exceptions import (
    BashIncorrectSyntaxError,
    CommandTimeoutError,
    NoExitCodeError,
    NonZeroExitCodeError,
    SessionDoesNotExistError,
    SessionExistsError,
)
from swerex.runtime.abstract import (
    BashAction,
    BashInterruptAction,
    BashObservation,
    CloseBashSessionRequest,
    Command,
    CreateBashSessionRequest,
)

from rollbox_integrations.swe_rex import RollboxDeployment, RollboxRuntime

LONG_S = 60.0


async def said(runtime: RollboxRuntime, command: str, **action: object) -> BashObservation:
    return await runtime.run_in_session(BashAction.model_validate({"command": command, "timeout": LONG_S, **action}))


async def runs(runtime: RollboxRuntime, pattern: str) -> bool:
    return (await runtime.execute(Command(command=["pgrep", "-f", pattern]))).exit_code == 0


async def test_directory_variables_and_functions_stay(runtime: RollboxRuntime) -> None:
    await said(runtime, "cd /usr/bin\nexport A='x y'\nf() { echo f:$1; }")
    observed = await said(runtime, 'pwd; echo "$A"; f 1; false', check="silent")
    assert (observed.output, observed.exit_code) == ("/usr/bin\nx y\nf:1\n", 1)
    assert (await said(runtime, "cat <<'end'\n$A\n\nend\necho after")).output == "$A\n\nafter\n"
    assert (await said(runtime, "false", check="ignore")).exit_code is None
    assert (await said(runtime, " \n")).exit_code == 0


async def test_files_are_sourced_before_the_first_command(deployment: RollboxDeployment) -> None:
    files = "cat >/tmp/rc <<'end'\nA=sourced\nPS1='own> '\necho hello\nend"
    runtime = deployment.runtime
    await runtime.create_session(CreateBashSessionRequest(session="first", startup_timeout=LONG_S))
    await said(runtime, files, session="first")
    second = CreateBashSessionRequest(session="second", startup_source=["/tmp/rc"], startup_timeout=LONG_S)
    assert (await runtime.create_session(second)).output == "hello\n"
    assert (await said(runtime, "echo $A", session="second")).output == "sourced\n"
    assert (await said(runtime, "echo ${A-unset}", session="first")).output == "unset\n"
    with pytest.raises(SessionExistsError):
        await runtime.create_session(second)
    late = CreateBashSessionRequest(session="third", startup_source=["/tmp/rc; sleep 314"], startup_timeout=5)
    with pytest.raises(CommandTimeoutError):
        await runtime.create_session(late)
    assert not await runs(runtime, "sleep [3]14")


async def test_a_code_that_is_not_0_is_an_error_where_it_is_asked_for(runtime: RollboxRuntime) -> None:
    with pytest.raises(NonZeroExitCodeError, match=r"^no luck: .*'echo so far; \(exit 3\)'.*code 3(?s:.*)so far"):
        await said(runtime, "echo so far; (exit 3)", error_msg="no luck")


async def test_what_is_no_bash_is_told_and_nothing_of_it_runs(runtime: RollboxRuntime) -> None:
    with pytest.raises(BashIncorrectSyntaxError) as wrong:
        await said(runtime, "touch /tmp/ran\n(a")
    assert "syntax error" in wrong.value.extra_info["bash_stderr"]
    with pytest.raises(BashIncorrectSyntaxError, match=r"x1b"):
        await said(runtime, "touch /tmp/ran; printf '\x1b'")
    assert (await said(runtime, "ls /tmp/ran", check="silent")).exit_code == 2


async def test_escapes_of_a_terminal_are_left_out(runtime: RollboxRuntime) -> None:
    colours = r"printf '\e[1;31mred\e[0m \e]0;title\a\e(Bplain\n'"
    assert (await said(runtime, colours)).output == "red plain\n"


async def test_a_late_command_is_killed_and_the_session_goes_on(runtime: RollboxRuntime) -> None:
    await said(runtime, "A=kept")
    with pytest.raises(CommandTimeoutError, match="timeout after 5.0 seconds while running command 'sleep 315'"):
        await said(runtime, "sleep 315", timeout=5)
    assert not await runs(runtime, "sleep [3]15")
    assert (await runtime.run_in_session(BashInterruptAction())).output == ""
    assert (await said(runtime, "echo $A")).output == "kept\n"


async def test_a_cancelled_command_is_killed_and_the_session_goes_on(runtime: RollboxRuntime) -> None:
    running = asyncio.create_task(said(runtime, "sleep 316"))
    while not await runs(runtime, "sleep [3]16"):
        pass
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (await said(runtime, "echo on")).output == "on\n"
    assert not await runs(runtime, "sleep [3]16")


async def test_a_program_is_spoken_to_and_left(runtime: RollboxRuntime) -> None:
    for _ in range(2):
        await said(runtime, "python3 -q", is_interactive_command=True, expect=[">>> "])
        answer = await said(runtime, "print(6 * 7)", is_interactive_command=True, expect=["never", ">>> "])
        assert (answer.output, answer.exit_code, answer.expect_string) == ("42", 0, ">>> ")
        left = await said(runtime, "quit()\n", is_interactive_quit=True)
        assert left.expect_string == ""
        assert (await said(runtime, "echo shell")).output == "shell\n"


async def test_a_program_that_ends_by_itself_ends_the_wait(runtime: RollboxRuntime) -> None:
    observed = await said(runtime, "echo one; echo two", is_interactive_command=True, expect=["never"])
    assert (observed.output, observed.expect_string) == ("one\ntwo", "")


async def test_a_program_that_says_something_else_stays_and_is_interrupted(runtime: RollboxRuntime) -> None:
    with pytest.raises(CommandTimeoutError):
        await said(runtime, "sh -c 'trap \"\" INT; sleep 317'", is_interactive_command=True, expect=["no"], timeout=2)
    assert await runs(runtime, "sleep [3]17")
    await runtime.run_in_session(BashInterruptAction())
    assert not await runs(runtime, "sleep [3]17")
    assert (await said(runtime, "echo on")).output == "on\n"


async def test_an_interrupt_within_a_program_stays_in_it(runtime: RollboxRuntime) -> None:
    await said(runtime, "python3 -q", is_interactive_command=True, expect=[">>> "])
    waits = "import time; time.sleep(1000)"
    with pytest.raises(CommandTimeoutError):
        await said(runtime, waits, is_interactive_command=True, expect=[">>> "], timeout=5)
    observed = await runtime.run_in_session(BashInterruptAction(expect=[">>> "], timeout=5))
    assert "KeyboardInterrupt" in observed.output
    assert (await said(runtime, "1 + 1", is_interactive_command=True, expect=[">>> "])).output == "2"
    await runtime.run_in_session(BashInterruptAction())
    assert (await said(runtime, "echo on")).output == "on\n"


async def test_a_command_may_be_left_when_it_has_said_something(runtime: RollboxRuntime) -> None:
    observed = await said(runtime, "echo ready; sleep 318", expect=["rea.y"], check="ignore")
    assert (observed.output, observed.exit_code, observed.expect_string) == ("", None, "rea.y")
    await runtime.run_in_session(BashInterruptAction())
    assert not await runs(runtime, "sleep [3]18")
    ended = await said(runtime, "echo ready; (exit 4)", expect=["never"], check="silent")
    assert (ended.output, ended.exit_code) == ("ready\n", 4)
    with pytest.raises(NoExitCodeError):
        await said(runtime, "echo ready; sleep 318", expect=["ready"], check="raise")
    with pytest.raises(ValueError, match="no regular expression"):
        await said(runtime, "true", expect=["("])


async def test_exit_ends_a_session_and_another_may_have_its_name(runtime: RollboxRuntime) -> None:
    observed = await said(runtime, "echo bye; exit 3", check="silent")
    assert (observed.output.splitlines()[0], observed.exit_code) == ("bye", 3)
    with pytest.raises(SessionDoesNotExistError, match="exited with code 3"):
        await said(runtime, "true")
    await runtime.create_session(CreateBashSessionRequest(startup_timeout=LONG_S))
    assert (await said(runtime, "echo on")).output == "on\n"
    await runtime.close_session(CloseBashSessionRequest())
    with pytest.raises(SessionDoesNotExistError):
        await runtime.close_session(CloseBashSessionRequest())


async def test_what_a_session_left_running_ends_with_it(runtime: RollboxRuntime) -> None:
    await said(runtime, "sleep 319 &", check="silent")
    assert await runs(runtime, "sleep [3]19")
    await runtime.close()
    while await runs(runtime, "sleep [3]19"):
        pass
