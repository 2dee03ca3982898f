"""What happened to a sandbox, and what TRL sees: each row of the page's table.

Both of its trainers tell the model what a tool has raised, leave a reward of None out of the loss, and end the run for
what `reset` or `get_reward` raises.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from harbor.environments.base import SandboxBuildFailedError

from on_trl.rollouts import IMAGE, NO_IMAGE, rollout, sandbox_of, spec, task
from rollbox import Client
from rollbox.sync import Client as SyncClient
from rollbox_integrations.trl import RollboxBashEnv, SandboxUnavailable

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


class Quick(RollboxBashEnv):
    """The harness with a shorter deadline."""

    def bash(self, command: str) -> str:
        return self._exec(command, timeout=5)


def masked(env: RollboxBashEnv, code: str) -> None:
    """There is no reward, the model is told why, and whose fault it was is written down."""
    with pytest.raises(SandboxUnavailable, match=rf"{code} \(caller; mask the sample\): "):
        env.bash("true")
    assert env.get_reward() is None
    assert env.fault is not None
    assert (env.fault["code"], env.fault["mask_sample"]) == (code, True)


def test_a_deadline_is_told_to_the_model_and_scored(client: Client, tmp_path: Path) -> None:
    with rollout(task(tmp_path), agent=Quick) as env:
        with pytest.raises(RuntimeError, match="Command timed out after 5 seconds"):
            env.bash("sleep 307")
        assert env.bash("pgrep -f 'sleep [3]07'") == "(empty output, rc=1)"
        assert (env.get_reward(), env.fault) == (0.0, None)


def test_out_of_memory_is_a_result_and_scored(client: Client, tmp_path: Path) -> None:
    with rollout(task(tmp_path, memory="64M")) as env:
        assert "memory limit" in env.bash(EATS)
        assert (env.get_reward(), env.fault) == (0.0, None)


def test_a_sandbox_that_somebody_deletes_is_masked_and_the_next_rollout_has_another(
    client: Client, tmp_path: Path
) -> None:
    with rollout(task(tmp_path)) as env:
        with SyncClient() as other:
            other.delete(sandbox_of(env))
        masked(env, "deleted")
        env.reset(task_dir=str(tmp_path / "suite/task"))
        assert env.bash("echo again") == "again\n"
        assert (env.get_reward(), env.fault) == (0.0, None)


def test_an_image_that_is_not_there_is_masked(client: Client, tmp_path: Path) -> None:
    with rollout(task(tmp_path, docker_image=NO_IMAGE)) as env:
        masked(env, "image_not_found")


def test_a_dockerfile_that_cannot_be_built_ends_the_run(client: Client, tmp_path: Path) -> None:
    suite = task(tmp_path, docker_image="")
    (suite / "task/environment/Dockerfile").write_text("ARG BASE\nFROM $BASE\nRUN exit 3\n")
    with rollout(suite) as env, pytest.raises(SandboxBuildFailedError, match=r"build_failed \(caller; score"):
        env.get_reward()


def test_an_argument_that_is_wrong_ends_the_run(client: Client, tmp_path: Path) -> None:
    made = rollout(task(tmp_path), labels={"rollbox/": "x"})
    with made as env, pytest.raises(SandboxBuildFailedError, match=r"invalid_argument \(caller; score"):
        env.get_reward()
    (tmp_path / "suite/task/environment/docker-compose.yaml").write_text("services: {}\n")
    with pytest.raises(ValueError, match=r"docker-compose"), rollout(tmp_path / "suite"):
        pass


async def test_a_quota_that_is_used_up_is_masked(client: Client, tmp_path: Path) -> None:
    owner = (await client.quota()).owner
    await client.set_quota(owner, sandboxes=1)

    def both() -> None:
        with rollout(task(tmp_path)) as first:
            sandbox_of(first)
            # A reset does not wait for its sandbox.
            with rollout(tmp_path / "suite", start_timeout=5) as second:
                masked(second, "quota_exceeded")
            assert first.get_reward() == 0.0

    try:
        await asyncio.to_thread(both)
    finally:
        await client.remove_quota(owner)


def test_a_sandbox_whose_program_died_is_masked(client: Client, tmp_path: Path) -> None:
    with rollout(task(tmp_path)) as env, SyncClient() as other:
        sandbox_of(env)
        words = [sys.executable, "-c", TRAINER, IMAGE]
        program = subprocess.Popen(words, env=os.environ.copy(), stdout=subprocess.PIPE, text=True)
        assert program.stdout is not None
        orphan = program.stdout.readline().strip()
        harbors: Any = env._env
        connecting = Client()
        own, harbors._sandbox = harbors.sandbox, env._run(connecting.connect(orphan))
        program.send_signal(signal.SIGKILL)
        program.communicate()
        while other.get(orphan).state != "ended":
            time.sleep(0.5)
        try:
            masked(env, "lease_expired")
        finally:
            harbors._sandbox = own
            env._run(connecting.aclose())


def test_the_reward_itself_says_why_there_is_none(client: Client, tmp_path: Path) -> None:
    with rollout(task(tmp_path, docker_image=NO_IMAGE)) as env:
        with pytest.raises(SandboxUnavailable, match="image_not_found"):
            _ = env.reward
        assert spec().reward_funcs is None
