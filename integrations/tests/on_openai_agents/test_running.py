"""Commands that a model goes on with, by openai-agents' calls for terminals."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest
from agents.sandbox.errors import PtySessionNotFoundError
from agents.sandbox.session import SandboxSession
from agents.sandbox.session.pty_types import PTY_PROCESSES_MAX, PtyExecUpdate

from on_openai_agents.sessions import session
from rollbox import Client
from rollbox_integrations.openai_agents import sandbox_of


async def until(box: SandboxSession, update: PtyExecUpdate, wanted: bytes) -> bytes:
    """Ask until the command has said something."""
    said = update.output
    while wanted not in said and update.process_id is not None:
        update = await box.pty_write_stdin(session_id=update.process_id, chars="", yield_time_s=0)
        said += update.output
    return said


async def test_a_short_command_is_told_with_its_end(box: SandboxSession) -> None:
    assert box.supports_pty()
    update = await box.pty_exec_start("echo out; echo err >&2; exit 3", yield_time_s=20)
    assert (update.process_id, update.exit_code) == (None, 3)
    assert sorted(update.output.split()) == [b"err", b"out"]


async def test_a_terminal_is_typed_into_and_interrupted(box: SandboxSession) -> None:
    update = await box.pty_exec_start("stty size; exec cat", tty=True, yield_time_s=0)
    assert update.process_id is not None
    assert b"24 80" in await until(box, update, b"24 80")
    update = await box.pty_write_stdin(session_id=update.process_id, chars="grüße\n", yield_time_s=0)
    assert "grüße\r\ngrüße\r\n".encode() in await until(box, update, "\ngrüße\r\n".encode())
    assert update.process_id is not None
    number = update.process_id
    update = await box.pty_write_stdin(session_id=number, chars="\x03", yield_time_s=20)
    assert (update.process_id, update.exit_code) == (None, 130)
    with pytest.raises(PtySessionNotFoundError):
        await box.pty_write_stdin(session_id=number, chars="")


async def test_a_command_without_a_terminal_takes_no_text(box: SandboxSession) -> None:
    update = await box.pty_exec_start("sleep 306", yield_time_s=0)
    assert update.process_id is not None
    with pytest.raises(RuntimeError, match="stdin is not available"):
        await box.pty_write_stdin(session_id=update.process_id, chars="a")
    await box.pty_terminate_all()
    assert (await box.exec("pgrep -f 'sleep [3]06'")).exit_code == 1


async def test_a_start_that_is_cancelled_kills_the_command(box: SandboxSession) -> None:
    starting = asyncio.create_task(box.pty_exec_start("touch started; sleep 307", yield_time_s=30))
    while not (await box.exec("test -e started")).ok():  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0)
    starting.cancel()
    await asyncio.wait([starting])
    assert (await box.exec("pgrep -f 'sleep [3]07'")).exit_code == 1


async def test_a_long_output_comes_in_parts_and_is_cut_to_tokens(box: SandboxSession) -> None:
    update = await box.pty_exec_start("seq 1 400000", yield_time_s=20)
    assert update.process_id is not None
    assert len(update.output) < 2 * 2**20
    while update.process_id is not None:
        update = await box.pty_write_stdin(session_id=update.process_id, chars="", yield_time_s=0)
    assert (update.output.endswith(b"400000\n"), update.exit_code) == (True, 0)
    cut = await box.pty_exec_start("seq 1 4000", yield_time_s=20, max_output_tokens=50)
    assert (cut.original_token_count or 0) > 1000 > len(cut.output)


async def test_the_one_that_was_not_used_for_longest_makes_room(box: SandboxSession) -> None:
    def start() -> Awaitable[PtyExecUpdate]:
        return box.pty_exec_start("exec sleep 308", shell=["sh", "-c"], yield_time_s=0)

    first = await start()
    await asyncio.gather(*(start() for _ in range(PTY_PROCESSES_MAX)))
    assert (await box.exec("pgrep -fc '^sleep [3]08'")).stdout == b"%d\n" % PTY_PROCESSES_MAX
    assert first.process_id is not None
    with pytest.raises(PtySessionNotFoundError):
        await box.pty_write_stdin(session_id=first.process_id, chars="")


async def test_out_of_memory_and_a_deadline_are_ends(client: Client) -> None:
    async with session(memory="64Mi") as box:
        late = await box.pty_exec_start("sleep 309", timeout=5, yield_time_s=30)
        assert (late.exit_code, b"passed its timeout" in late.output) == (124, True)
        eats = "python3 -c 'x = b\"x\" * (1 << 30); print(len(x))'"
        full = await box.pty_exec_start("exec " + eats, yield_time_s=30)
        assert (full.exit_code, b"memory limit" in full.output) == (137, True), full.output


async def test_nothing_runs_on_after_the_session(client: Client) -> None:
    async with session() as box:
        await box.pty_exec_start("sleep 310", yield_time_s=0)
        sandbox_id = sandbox_of(box).id
    assert (await client.get(sandbox_id)).state in ("ending", "ended")
