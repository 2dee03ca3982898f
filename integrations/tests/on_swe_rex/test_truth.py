"""What happened to a sandbox, and what SWE-ReX sees: each row of the page's table."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import pytest
from pydantic import ValidationError
from swerex.exceptions import DeploymentNotStartedError, DeploymentStartupError, SwerexException
from swerex.runtime.abstract import BashAction, Command, ReadFileRequest

from on_swe_rex.deployments import IMAGE, LABELS, NO_IMAGE, made, started
from rollbox import Client, Sandbox
from rollbox.sync.loop_thread import on_background_loop
from rollbox_integrations.swe_rex import RollboxDeployment, RollboxRuntime, SandboxUnavailableError

TRAINER = """
import asyncio, sys
from rollbox_integrations.swe_rex import RollboxDeployment

async def main():
    deployment = RollboxDeployment(image=sys.argv[1], memory="128Mi", lease=5)
    await deployment.start()
    print(deployment.sandbox.id, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""
EATS = "python3 -c 'x = b\"x\" * (1 << 30); print(len(x))'"


async def test_out_of_memory_is_a_result(client: Client) -> None:
    async with started(memory="64Mi") as deployment:
        told = await deployment.runtime.execute(Command(command=EATS, shell=True))
        assert (told.exit_code, "memory limit" in told.stderr) == (137, True)


async def test_out_of_memory_in_a_session_is_a_result(runtime: RollboxRuntime) -> None:
    told = await runtime.run_in_session(BashAction(command=EATS, timeout=60, check="silent"))
    assert (told.exit_code, "memory limit" in told.output) == (137, True)


async def test_a_sandbox_that_somebody_deletes_is_unavailable(
    runtime: RollboxRuntime, deployment: RollboxDeployment, client: Client
) -> None:
    assert await deployment.is_alive()
    await client.delete(deployment.sandbox.id)
    said = r"deleted \(caller; mask the sample\): "
    with pytest.raises(SandboxUnavailableError, match=said) as gone:
        await runtime.run_in_session(BashAction(command="true", timeout=60))
    assert isinstance(gone.value, SwerexException)
    fault = gone.value.extra_info["fault"]
    assert (fault["code"], fault["mask_sample"], fault["sandbox_id"]) == ("deleted", True, deployment.sandbox.id)
    with pytest.raises(SandboxUnavailableError, match=said):
        await runtime.execute(Command(command=["true"]))
    with pytest.raises(SandboxUnavailableError, match=said):
        await runtime.read_file(ReadFileRequest(path="/etc/hostname"))
    alive = await deployment.is_alive(timeout=10)
    assert not alive
    assert "deleted" in alive.message or "end" in alive.message


async def test_an_image_that_is_not_there_is_no_sandbox(client: Client) -> None:
    with pytest.raises(DeploymentStartupError, match=r"image_not_found \(caller; mask the sample\): ") as none:
        await made(image=NO_IMAGE).start()
    assert getattr(none.value, "extra_info")["fault"]["code"] == "image_not_found"  # noqa: B009 - of a subclass


async def test_a_quota_that_is_used_up_is_no_sandbox(deployment: RollboxDeployment, client: Client) -> None:
    owner = (await client.quota()).owner
    await client.set_quota(owner, sandboxes=1)
    try:
        with pytest.raises(DeploymentStartupError, match=r"quota_exceeded \(caller; mask the sample\): "):
            await made(startup_timeout=5).start()
    finally:
        await client.remove_quota(owner)


async def test_a_sandbox_whose_program_died_is_not_left_behind(client: Client) -> None:
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-c", TRAINER, IMAGE, env=os.environ.copy(), stdout=asyncio.subprocess.PIPE
    )
    assert program.stdout is not None
    sandbox_id = (await program.stdout.readline()).decode().strip()
    runtime = RollboxRuntime(await on_background_loop(Sandbox.connect(sandbox_id)))
    program.send_signal(signal.SIGKILL)
    await program.communicate()
    while (await client.get(sandbox_id)).state != "ended":  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0.5)
    with pytest.raises(SandboxUnavailableError, match=r"lease_expired \(caller; mask the sample\): "):
        await runtime.execute(Command(command=["true"]))


async def test_a_wrong_option_is_the_callers(client: Client) -> None:
    with pytest.raises(ValidationError, match="memroy"):
        made(memroy=1)
    with pytest.raises(ValueError, match=r"invalid_argument \(caller; score the sample\): .*memory"):
        await made(memory="much").start()


async def test_it_is_started_once_and_stopped_as_often_as_one_likes(client: Client) -> None:
    deployment = made()
    with pytest.raises(DeploymentNotStartedError):
        await deployment.is_alive()
    await deployment.stop()
    async with started() as deployment:
        with pytest.raises(RuntimeError, match="was started before"):
            await deployment.start()
        sandbox_id = deployment.sandbox.id
        await deployment.stop()
    assert (await client.get(sandbox_id)).state in ("ending", "ended")


async def test_one_that_is_dropped_deletes_its_sandbox(client: Client) -> None:
    deployment = made()
    await deployment.start()
    sandbox_id = deployment.sandbox.id
    del deployment
    assert (await client.get(sandbox_id)).state in ("ending", "ended")


async def test_a_start_that_is_cancelled_leaves_nothing(client: Client) -> None:
    deployment = made()
    starting = asyncio.create_task(deployment.start())
    await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    # The thread of the SDK takes the create back.
    while [one.id for one in await client.list(LABELS) if one.state != "ending"]:
        pass
    await deployment.stop()
