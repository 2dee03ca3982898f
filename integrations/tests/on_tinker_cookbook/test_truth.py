"""What happened to a sandbox, and what tinker-cookbook sees: each row of the page's table."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest
from tinker_cookbook.exceptions import SandboxError
from tinker_cookbook.sandbox import SandboxTerminatedError

from on_tinker_cookbook.boxes import IMAGE, NO_IMAGE, created, options
from rollbox import Client, Sandbox
from rollbox_integrations.tinker_cookbook import (
    HarborSandboxFactory,
    RollboxSandbox,
    SandboxLostError,
    SandboxNotCreatedError,
)

TRAINER = """
import asyncio, sys
from rollbox_integrations.tinker_cookbook import RollboxSandbox

async def main():
    box = await RollboxSandbox.create(sys.argv[1], {"lease": 5, "memory": "128Mi"})
    print(box.sandbox_id, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""
EATS = "python3 -c 'x = b\"x\" * (1 << 30); print(len(x))'"


async def test_a_deadline_is_a_result(box: RollboxSandbox) -> None:
    late = await box.run_command("echo so far; sleep 334", timeout=5)
    assert (late.stdout, late.exit_code, "passed its timeout" in late.stderr) == ("so far\n", 124, True)
    assert (await box.run_command("pgrep -fx 'sleep 334'")).exit_code == 1


async def test_out_of_memory_is_a_result(client: Client) -> None:
    async with created(memory="64Mi") as box:
        result = await box.run_command(EATS)
        assert (result.exit_code, "memory limit" in result.stderr) == (137, True)


async def test_a_sandbox_that_somebody_deletes_is_terminated(box: RollboxSandbox, client: Client) -> None:
    await box.run_command("false")
    assert box.fault is None
    await client.delete(box.sandbox_id)
    calls = (
        lambda: box.run_command("true"),
        lambda: box.read_file("/etc/hostname"),
        lambda: box.write_file("/tmp/a", "a"),
        box.send_heartbeat,
    )
    for call in calls:
        with pytest.raises(SandboxTerminatedError, match=r"deleted \(caller; mask the sample\): ") as gone:
            await call()
        assert isinstance(gone.value, SandboxLostError)
        assert (gone.value.fault["code"], gone.value.fault["mask_sample"]) == ("deleted", True)
    assert box.fault is not None
    assert box.fault["sandbox_id"] == box.sandbox_id
    await box.cleanup()


async def test_an_image_that_is_not_there_is_no_sandbox(client: Client) -> None:
    with pytest.raises(SandboxError, match=r"image_not_found \(caller; mask the sample\): ") as none:
        await RollboxSandbox.create(NO_IMAGE, options())
    assert isinstance(none.value, SandboxNotCreatedError)
    assert none.value.fault["code"] == "image_not_found"


async def test_an_image_that_cannot_be_built_is_no_sandbox(client: Client, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(f"FROM {IMAGE}\nRUN exit 3\n")
    with pytest.raises(SandboxError, match=r"build_failed \(caller; score the sample\): "):
        await HarborSandboxFactory(options())(tmp_path, 600)


async def test_a_quota_that_is_used_up_is_no_sandbox(box: RollboxSandbox, client: Client) -> None:
    owner = (await client.quota()).owner
    await client.set_quota(owner, sandboxes=1)
    try:
        with pytest.raises(SandboxError, match=r"quota_exceeded \(caller; mask the sample\): "):
            await RollboxSandbox.create(IMAGE, options(start_timeout=5))
    finally:
        await client.remove_quota(owner)


async def test_a_sandbox_whose_program_died_is_terminated(client: Client) -> None:
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-c", TRAINER, IMAGE, env=os.environ.copy(), stdout=asyncio.subprocess.PIPE
    )
    assert program.stdout is not None
    box = RollboxSandbox(await Sandbox.connect((await program.stdout.readline()).decode().strip()))
    program.send_signal(signal.SIGKILL)
    await program.communicate()
    while (await client.get(box.sandbox_id)).state != "ended":  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0.5)
    with pytest.raises(SandboxTerminatedError, match=r"lease_expired \(caller; mask the sample\): "):
        await box.run_command("true")


async def test_a_wrong_option_is_the_callers(client: Client) -> None:
    with pytest.raises(ValueError, match=r"invalid_argument \(caller; score the sample\): .*memory"):
        await RollboxSandbox.create(IMAGE, options(memory="much"))
    with pytest.raises(TypeError, match="memroy"):
        await RollboxSandbox.create(IMAGE, options(memroy=1))
