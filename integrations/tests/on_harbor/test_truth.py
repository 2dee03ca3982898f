"""What happened to a sandbox, and what Harbor sees: each row of the page's table."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest
from harbor.environments.base import HealthcheckError, SandboxBuildFailedError
from harbor.models.trial.error_policy import policy_for

from on_harbor.trials import IMAGE, NO_IMAGE, started
from rollbox import Client
from rollbox_integrations.harbor import RollboxEnvironment

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


@pytest.mark.parametrize("kind", [HealthcheckError, SandboxBuildFailedError])
def test_what_is_no_samples_doing_is_tried_again_and_has_no_reward(kind: type[Exception]) -> None:
    policy = policy_for(kind.__name__)
    assert (policy.should_retry, policy.should_grade, policy.has_valid_reward) == (True, False, False)


async def test_a_deadline_is_as_with_docker(box: RollboxEnvironment) -> None:
    with pytest.raises(RuntimeError, match="Command timed out after 5 seconds"):
        await box.exec("sleep 303", timeout_sec=5)
    assert (await box.exec("pgrep -f 'sleep [3]03'")).return_code == 1
    assert policy_for("RuntimeError").has_valid_reward


async def test_out_of_memory_is_a_result(client: Client, tmp_path: Path) -> None:
    async with started(tmp_path, {"memory_mb": 64}) as box:
        result = await box.exec(EATS)
        assert (result.return_code, result.stdout) == (137, "")
        assert "memory limit" in (result.stderr or "")


async def test_a_sandbox_that_somebody_deletes_is_tried_again(
    box: RollboxEnvironment, client: Client, tmp_path: Path
) -> None:
    await client.delete(box.sandbox.id)
    for call in (box.exec("true"), box.download_file("/etc/hostname", tmp_path / "x"), box.upload_dir(tmp_path, "/y")):
        with pytest.raises(HealthcheckError, match=r"deleted \(caller; mask the sample\): "):
            await call


async def test_an_image_that_is_not_there_is_no_sandbox(client: Client, tmp_path: Path) -> None:
    with pytest.raises(SandboxBuildFailedError, match=r"image_not_found \(caller; mask the sample\): "):
        async with started(tmp_path, {"docker_image": NO_IMAGE}):
            pass


async def test_a_dockerfile_that_fails_is_told_as_such(client: Client, tmp_path: Path) -> None:
    (tmp_path / "environment").mkdir()
    (tmp_path / "environment/Dockerfile").write_text("ARG BASE\nFROM $BASE\nRUN exit 3\n")
    with pytest.raises(SandboxBuildFailedError, match=r"build_failed \(caller; score the sample\): "):
        async with started(tmp_path, {"docker_image": None}, build_args={"BASE": IMAGE}):
            pass


async def test_a_quota_that_is_used_up_is_no_sandbox(box: RollboxEnvironment, client: Client, tmp_path: Path) -> None:
    owner = (await client.quota()).owner
    await client.set_quota(owner, sandboxes=1)
    try:
        with pytest.raises(HealthcheckError, match=r"quota_exceeded \(caller; mask the sample\): "):
            async with started(tmp_path, start_timeout=5):
                pass
    finally:
        await client.remove_quota(owner)


async def test_a_sandbox_whose_program_died_is_tried_again(box: RollboxEnvironment, client: Client) -> None:
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-c", TRAINER, IMAGE, env=os.environ.copy(), stdout=asyncio.subprocess.PIPE
    )
    assert program.stdout is not None
    orphan = await client.connect((await program.stdout.readline()).decode().strip())
    program.send_signal(signal.SIGKILL)
    await program.communicate()
    while (await client.get(orphan.id)).state != "ended":  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0.5)
    own, box._sandbox = box.sandbox, orphan
    try:
        with pytest.raises(HealthcheckError, match=r"lease_expired \(caller; mask the sample\): "):
            await box.exec("true")
    finally:
        box._sandbox = own


def test_without_an_address_no_trial_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ROLLBOX_URL", "ROLLBOX_STATE_DIR"):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("ROLLBOX_URL", "not-an-address")
    with pytest.raises(SystemExit, match="not-an-address"):
        RollboxEnvironment.preflight({})
