"""What happened to a sandbox, and what verifiers sees: each row of the page's table."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import pytest
from verifiers.v1.errors import SandboxError, stop_condition
from verifiers.v1.runtimes import Runtime

from on_verifiers.rollouts import IMAGE, NO_IMAGE, backend, runtime
from rollbox import Client

TRAINER = """
import asyncio, sys
from rollbox import Client

async def main():
    sandbox = await Client().create(sys.argv[1], lease=5, memory="128Mi")
    print(sandbox.id, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""
EATS = ["python3", "-c", "x = b'x' * (1 << 30); print(len(x))"]


async def test_a_deadline_is_a_cancellation_that_kills(box: Runtime) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(5):
            await box.run(["sleep", "302"], {})
    assert (await box.run(["pgrep", "-f", "sleep 302"], {})).exit_code == 1
    assert backend(box).info.fault is None


async def test_out_of_memory_is_a_result(client: Client) -> None:
    async with runtime(memory=0.0625) as box:
        result = await box.run(EATS, {})
        assert (result.exit_code, result.stdout) == (137, "")
        assert "memory limit" in result.stderr
    async with runtime(memory=0.0625) as box:
        process = await box.exec(EATS, {})
        assert await process.wait() == 137


async def test_a_sandbox_that_somebody_deletes_is_a_sandbox_error(box: Runtime, client: Client) -> None:
    process = await box.exec(["sleep", "300"], {})
    await client.delete(backend(box).sandbox.id)
    said = r"deleted \(caller; mask the sample\): "
    with pytest.raises(SandboxError, match=said) as lost:
        await box.run(["true"], {})
    assert stop_condition(lost.value) == "sandbox_error"
    for call in (box.read("a"), box.write("a", b""), process.wait(), box.exec(["true"], {})):
        with pytest.raises(SandboxError, match=said):
            await call
    fault = backend(box).info.model_dump()["fault"]
    assert (fault["code"], fault["mask_sample"], fault["fault"]) == ("deleted", True, "caller")
    assert not await box.alive()


async def test_an_image_that_is_not_there_is_no_sandbox(client: Client) -> None:
    with pytest.raises(SandboxError, match=r"image_not_found \(caller; mask the sample\): "):
        async with runtime(image=NO_IMAGE):
            pass


async def test_a_quota_that_is_used_up_is_no_sandbox(box: Runtime, client: Client) -> None:
    owner = (await client.quota()).owner
    await client.set_quota(owner, sandboxes=1)
    try:
        with pytest.raises(SandboxError, match=r"quota_exceeded \(caller; mask the sample\): "):
            async with runtime(start_timeout=5):
                pass
    finally:
        await client.remove_quota(owner)


async def test_a_sandbox_whose_program_died_is_a_sandbox_error(box: Runtime, client: Client) -> None:
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-c", TRAINER, IMAGE, env=os.environ.copy(), stdout=asyncio.subprocess.PIPE
    )
    assert program.stdout is not None
    orphan = await client.connect((await program.stdout.readline()).decode().strip())
    program.send_signal(signal.SIGKILL)
    await program.communicate()
    while (await client.get(orphan.id)).state != "ended":  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0.5)
    own, backend(box)._sandbox = backend(box).sandbox, orphan
    try:
        with pytest.raises(SandboxError, match=r"lease_expired \(caller; mask the sample\): "):
            await box.run(["true"], {})
    finally:
        backend(box)._sandbox = own


async def test_a_wrong_option_is_the_callers(client: Client) -> None:
    with pytest.raises(SandboxError, match=r"invalid_argument \(caller; score the sample\): .*cpu"):
        async with runtime(cpu=-1):
            pass
    with pytest.raises(SandboxError, match="gpu 'A100' names a kind"):
        async with runtime(gpu="A100"):
            pass
