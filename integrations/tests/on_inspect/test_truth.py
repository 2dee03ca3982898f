"""What happened to a sandbox, and what inspect sees: each row of the page's table."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import pytest
from inspect_ai.util import SandboxUnavailableError
from losing import lose

from on_inspect.samples import IMAGE, NO_IMAGE, made, sample
from rollbox import Client
from rollbox.errors import InvalidArgument
from rollbox_integrations.inspect import RollboxConfig, RollboxSandboxEnvironment

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


async def test_a_deadline_is_a_timeout_with_what_was_written(sandbox_env: RollboxSandboxEnvironment) -> None:
    with pytest.raises(TimeoutError, match="timed out after 5 seconds") as late:
        await sandbox_env.exec(["sh", "-c", "echo so far; sleep 300"], timeout=5)
    assert getattr(late.value, "truncated_output", None) == "so far\n"


async def test_out_of_memory_is_a_result(client: Client) -> None:
    async with sample(memory="64Mi") as environment:
        result = await environment.exec(EATS)
        assert (result.success, result.returncode, result.stdout) == (False, 137, "")
        assert "memory limit" in result.stderr


async def test_a_sandbox_that_somebody_deletes_is_unavailable(client: Client) -> None:
    async with sample() as environment:
        await client.delete(environment.sandbox.id)
        said = r"deleted \(caller; mask the sample\): "
        with pytest.raises(SandboxUnavailableError, match=said):
            await environment.exec(["true"])
        with pytest.raises(SandboxUnavailableError, match=said):
            await environment.read_file("/etc/hostname")
        with pytest.raises(SandboxUnavailableError, match=said):
            await environment.write_file("/tmp/a", "a")
        with pytest.raises(ConnectionError, match="is end"):
            await environment.connection()


async def test_a_sandbox_that_the_platform_has_lost_is_unavailable(client: Client) -> None:
    async with sample() as environment:
        await asyncio.to_thread(lose, environment.sandbox.id)
        for _ in range(3):
            with pytest.raises(SandboxUnavailableError, match=r"sandbox_lost \(platform; mask the sample\): "):
                await environment.exec(["true"])


async def test_an_image_that_is_not_there_is_no_sandbox(client: Client) -> None:
    config = RollboxConfig(image=NO_IMAGE)
    with pytest.raises(SandboxUnavailableError, match=r"image_not_found \(caller; mask the sample\): "):
        await made(config)


async def test_a_quota_that_is_used_up_is_no_sandbox(client: Client) -> None:
    owner = (await client.quota()).owner
    async with sample(memory="128Mi"):
        await client.set_quota(owner, sandboxes=1)
        try:
            with pytest.raises(SandboxUnavailableError, match=r"quota_exceeded \(caller; mask the sample\): "):
                await made(RollboxConfig(image=IMAGE, start_timeout=5))
        finally:
            await client.remove_quota(owner)


async def test_a_sandbox_whose_program_died_is_unavailable(client: Client) -> None:
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-c", TRAINER, IMAGE, env=os.environ.copy(), stdout=asyncio.subprocess.PIPE
    )
    assert program.stdout is not None
    sandbox = await client.connect((await program.stdout.readline()).decode().strip())
    program.send_signal(signal.SIGKILL)
    await program.communicate()
    while (await client.get(sandbox.id)).state != "ended":  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0.5)
    with pytest.raises(SandboxUnavailableError, match=r"lease_expired \(caller; mask the sample\): "):
        await RollboxSandboxEnvironment(sandbox).exec(["true"])


async def test_a_wrong_argument_is_the_callers(client: Client) -> None:
    with pytest.raises(InvalidArgument, match="memory"):
        await made(RollboxConfig(image=IMAGE, memory="much"))
    with pytest.raises(ValueError, match=r"invalid_argument \(caller; score the sample\): .*nobody-there"):
        await made(RollboxConfig(image=IMAGE, user="nobody-there"))
