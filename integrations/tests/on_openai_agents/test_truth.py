"""What happened to a sandbox, and what openai-agents sees: each row of the page's table."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from agents.exceptions import UserError
from agents.sandbox import ExecTimeoutError
from agents.sandbox.errors import (
    ConfigurationError,
    ExecTransportError,
    WorkspaceArchiveReadError,
    WorkspaceArchiveWriteError,
    WorkspaceStartError,
)
from agents.sandbox.session import SandboxSession
from agents.sandbox.snapshot import NoopSnapshotSpec
from agents.testing import ModelCall, ModelStep, ScriptedModel, function_call
from pydantic import ValidationError

from on_openai_agents.sessions import IMAGE, LABELS, NO_IMAGE, options, run, session
from rollbox import Client
from rollbox_integrations.openai_agents import RollboxSandboxClient, fault_of, sandbox_of

TRAINER = """
import asyncio, sys
from rollbox import Client

async def main():
    sandbox = await Client().create(sys.argv[1], lease=5, memory="128Mi")
    print(sandbox.id, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""
EATS = "exec python3 -c 'x = b\"x\" * (1 << 30); print(len(x))'"


async def test_a_deadline_is_a_timeout_with_what_was_written(box: SandboxSession) -> None:
    with pytest.raises(ExecTimeoutError) as late:
        await box.exec("echo so far; sleep 304", timeout=5)
    assert (late.value.timeout_s, late.value.context["stdout"], late.value.retryable) == (5, "so far\n", False)
    assert (await box.exec("pgrep -f 'sleep [3]04'")).exit_code == 1


async def test_out_of_memory_is_a_result(client: Client) -> None:
    async with session(memory="64Mi") as box:
        result = await box.exec(EATS)
        assert (result.exit_code, b"memory limit" in result.stderr) == (137, True)


async def test_a_sandbox_that_somebody_deletes_is_a_transport_error(box: SandboxSession, client: Client) -> None:
    await client.delete(sandbox_of(box).id)
    with pytest.raises(ExecTransportError, match=r"deleted \(caller; mask the sample\): ") as gone:
        await box.exec("true")
    assert gone.value.retryable is False
    fault = fault_of(gone.value)
    assert fault is not None
    assert (fault["code"], fault["mask_sample"]) == ("deleted", True)
    with pytest.raises(ExecTransportError):
        await box.pty_exec_start("true")
    with pytest.raises(WorkspaceArchiveReadError):
        await box.persist_workspace()
    with pytest.raises(WorkspaceArchiveWriteError, match="deleted"):
        await box.hydrate_workspace(BytesIO(bytes(10240)))
    assert not await box.running()


async def test_a_run_whose_sandbox_somebody_deletes_says_so(client: Client) -> None:
    async def delete(_: ModelCall) -> Any:
        await client.delete(labels=LABELS, wait=True)
        return [function_call("exec_command", {"cmd": "true"}, call_id="1")]

    with pytest.raises(UserError, match=r"deleted \(caller; mask the sample\): ") as ended:
        await run(ScriptedModel([ModelStep.respond(delete)]))
    fault = fault_of(ended.value)
    assert fault is not None
    assert (fault["code"], fault["mask_sample"]) == ("deleted", True)
    assert fault_of(ValueError()) is None


async def test_an_image_that_is_not_there_is_no_sandbox(client: Client) -> None:
    with pytest.raises(WorkspaceStartError, match=r"image_not_found \(caller; mask the sample\): ") as failed:
        await run(ScriptedModel([]), image=NO_IMAGE)
    assert failed.value.retryable is False


async def test_a_quota_that_is_used_up_is_no_sandbox(box: SandboxSession, client: Client) -> None:
    owner = (await client.quota()).owner
    await client.set_quota(owner, sandboxes=1)
    try:
        with pytest.raises(WorkspaceStartError, match=r"quota_exceeded \(caller; mask the sample\): ") as failed:
            await run(ScriptedModel([]), start_timeout=5)
    finally:
        await client.remove_quota(owner)
    assert failed.value.retryable is True


async def test_a_sandbox_whose_program_died_is_a_transport_error(box: SandboxSession, client: Client) -> None:
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-c", TRAINER, IMAGE, env=os.environ.copy(), stdout=asyncio.subprocess.PIPE
    )
    assert program.stdout is not None
    orphan = await client.connect((await program.stdout.readline()).decode().strip())
    program.send_signal(signal.SIGKILL)
    await program.communicate()
    while (await client.get(orphan.id)).state != "ended":  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0.5)
    inner = box._inner
    own, inner.sandbox = sandbox_of(box), orphan  # type: ignore[attr-defined]
    try:
        with pytest.raises(ExecTransportError, match=r"lease_expired \(caller; mask the sample\): "):
            await box.exec("true")
    finally:
        inner.sandbox = own  # type: ignore[attr-defined]


async def test_a_wrong_option_is_the_callers(client: Client) -> None:
    with pytest.raises(ValidationError, match="memroy"):
        options(memroy=1)
    with pytest.raises(ConfigurationError, match=r"invalid_argument \(caller; score the sample\): .*memory"):
        await RollboxSandboxClient().create(snapshot=NoopSnapshotSpec(), options=options(memory="much"))


async def test_a_failed_read_says_whether_to_mask(box: SandboxSession, client: Client) -> None:
    await box.exec("mkdir folder")
    with pytest.raises(WorkspaceArchiveReadError) as failed:
        await box.read(Path("folder"))
    fault = fault_of(failed.value)
    assert fault is not None
    assert (fault["code"], fault["mask_sample"]) == ("invalid_argument", False)
