"""What happened to a sandbox, and what NeMo Gym sees: each row of the page's table."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import pytest
from losing import lose
from nemo_gym.failure_kinds import is_namespaced, is_registered
from nemo_gym.sandbox import AsyncSandbox, SandboxCreateError

from on_nemo_gym.sandboxes import IMAGE, NO_IMAGE, own, started
from rollbox import Client, errors
from rollbox_integrations.nemo_gym import failure
from rollbox_integrations.nemo_gym.failure import RollboxCreateError

TRAINER = """
import asyncio, sys
from rollbox import Client

async def main():
    sandbox = await Client().create(sys.argv[1], lease=5, memory="128Mi")
    print(sandbox.id, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""
EATS = "python3 -c 'x = b\"x\" * (1 << 30); print(len(x))'"
NOTHING = {"mask_sample": False, "failure_kind": None, "failure_reason": None}


async def test_a_deadline_is_a_timeout_and_kills(box: AsyncSandbox) -> None:
    late = await box.exec("echo so far; sleep 303", timeout_s=5)
    assert (late.stdout, late.return_code, late.error_type) == ("so far\n", 125, "timeout")
    assert failure(late) == NOTHING
    assert (await box.exec("pgrep -f 'sleep [3]03'")).return_code == 1


async def test_out_of_memory_is_a_result_each_time(client: Client) -> None:
    async with started(resources={"memory_mib": 64}) as box:
        for _ in range(2):
            result = await box.exec(EATS)
            assert (result.return_code, result.error_type) == (137, None)
            assert "memory limit" in (result.stderr or "")
            assert failure(result) == NOTHING


async def test_a_sandbox_that_somebody_deletes_is_lost_and_masked(box: AsyncSandbox, client: Client) -> None:
    await client.delete(own(box).id)
    lost = await box.exec("true")
    assert (lost.return_code, lost.error_type) == (125, "sandbox")
    told = failure(lost)
    assert (told["mask_sample"], told["failure_kind"]) == (True, "session_lost")
    assert (told["failure_reason"] or "").startswith(f"deleted (caller), sandbox {own(box).id}: ")
    with pytest.raises(RuntimeError, match=r"deleted \(caller; mask the sample\): ") as upload:
        await box.upload(__file__, "/tmp/a")
    assert failure(upload.value)["failure_kind"] == "session_lost"


async def test_a_sandbox_that_the_platform_has_lost_is_lost_and_masked(box: AsyncSandbox, client: Client) -> None:
    await asyncio.to_thread(lose, own(box).id)
    told = failure(await box.exec("true"))
    assert (told["mask_sample"], told["failure_kind"]) == (True, "session_lost")
    assert (told["failure_reason"] or "").startswith(f"sandbox_lost (platform), sandbox {own(box).id}: ")


async def test_an_image_that_is_not_there_is_no_sandbox(client: Client) -> None:
    with pytest.raises(SandboxCreateError, match=r"image_not_found \(caller; mask the sample\): ") as error:
        async with started(image=NO_IMAGE):
            pass
    told = failure(error.value)
    assert (told["mask_sample"], told["failure_kind"]) == (True, "rollbox:image_not_found")


async def test_a_quota_that_is_used_up_is_no_sandbox(box: AsyncSandbox, client: Client) -> None:
    owner = (await client.quota()).owner
    await client.set_quota(owner, sandboxes=1)
    try:
        with pytest.raises(SandboxCreateError, match=r"quota_exceeded \(caller; mask the sample\): ") as error:
            async with started(ready_timeout_s=5):
                pass
    finally:
        await client.remove_quota(owner)
    assert failure(error.value)["failure_kind"] == "provider_quota_exhausted"


async def test_a_sandbox_whose_program_died_has_expired(box: AsyncSandbox, client: Client) -> None:
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-c", TRAINER, IMAGE, env=os.environ.copy(), stdout=asyncio.subprocess.PIPE
    )
    assert program.stdout is not None
    orphan = await client.connect((await program.stdout.readline()).decode().strip())
    program.send_signal(signal.SIGKILL)
    await program.communicate()
    while (await client.get(orphan.id)).state != "ended":  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0.5)
    handle = box._require_handle()
    kept, handle.raw = handle.raw, orphan
    try:
        told = failure(await box.exec("true"))
    finally:
        handle.raw = kept
    assert (told["mask_sample"], told["failure_kind"]) == (True, "session_expired")
    assert (told["failure_reason"] or "").startswith("lease_expired (caller), ")


async def test_a_wrong_spec_is_the_callers(client: Client) -> None:
    for spec, said in (
        ({"resources": {"cpu": -1}}, "cpu"),
        ({"resources": {"gpu": 1, "gpu_type": "H100"}}, "gpu_type 'H100'"),
        ({"image": None}, "SandboxSpec.image is not set"),
    ):
        with pytest.raises(
            SandboxCreateError, match=rf"invalid_argument \(caller; score the sample\): .*{said}"
        ) as error:
            async with started(**spec):
                pass
        told = failure(error.value)
        assert (told["mask_sample"], told["failure_kind"]) == (False, "rollbox:invalid_argument")


def test_each_code_has_a_name_that_nemo_gym_takes() -> None:
    for code, kind in errors.BY_CODE.items():
        name = failure(RollboxCreateError(kind("it failed")))["failure_kind"] or ""
        assert is_registered(name) or is_namespaced(name), code
    assert failure(ValueError("another's")) == NOTHING
