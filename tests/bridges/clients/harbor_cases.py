"""What Harbor's own environment of Prime does, a case a function, on one environment. Run by its own Python.

Prints a JSON object a case: its name, and what it saw or the error that it met.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from pathlib import Path

from harbor.environments.factory import EnvironmentFactory
from harbor.models.environment_type import EnvironmentType
from harbor.models.task.config import EnvironmentConfig, NetworkPolicy
from harbor.models.trial.paths import TrialPaths

IMAGE = os.environ["IMAGE"]


def made(folder, image=IMAGE, **more):
    """An environment as a trial has it."""
    files = folder / "environment"
    files.mkdir(parents=True)
    (files / "given").write_text("of the task")
    paths = TrialPaths(folder / "trial")
    paths.mkdir()
    config = EnvironmentConfig(docker_image=image, memory_mb=512, cpus=1, workdir="/tmp", env={"A": "of the task"})
    cls = EnvironmentFactory.get_environment_class(EnvironmentType.PRIME, None)
    return cls(files, "task", "task__1__env", paths, config, **more)


def told(result):
    return [result.return_code, result.stdout, result.stderr]


async def commands(one, _):
    return {
        "ran": told(await one.exec("echo $A-$B; pwd; echo e >&2; exit 3", env={"B": "more"})),
        "folder": told(await one.exec("pwd", cwd="/usr")),
        "user": told(await one.exec("id -un; pwd", user="nobody")),
        "number": told(await one.exec("id -u", user=12345)),
    }


async def timed_out(one, _):
    try:
        await one.exec("sleep 600", timeout_sec=1)
    except Exception as error:  # what a user would see
        return {"error": type(error).__name__}
    return {"error": "nothing"}


async def files(one, folder):
    (folder / "up/deep").mkdir(parents=True)
    (folder / "up/deep/f").write_bytes(b"\x00data")
    (folder / "up/run").write_text("#!/bin/sh\necho runs\n")
    (folder / "up/run").chmod(0o755)
    await one.upload_file(folder / "up/run", "/tmp/one/run")
    await one.upload_dir(folder / "up", "/tmp/many")
    await one.download_file("/tmp/many/deep/f", folder / "down")
    await one.download_dir("/tmp/many", folder / "back")
    return {
        "runs": told(await one.exec("/tmp/one/run && /tmp/many/run")),
        "same": (folder / "down").read_bytes() == b"\x00data" == (folder / "back/deep/f").read_bytes(),
    }


async def offline(_, folder):
    """A trial whose agent reaches nothing."""
    closed = made(folder / "closed", network_policy=NetworkPolicy(network_mode="no-network"))
    await closed.start(force_build=False)
    try:
        status = await closed._client.get_network(closed._sandbox_id)  # as the environment itself asks
        return {"policy": status.policy.allowlist, "applied": status.applied}
    finally:
        await closed.stop(delete=True)


async def no_image(_, folder):
    one = made(folder / "none", f"{IMAGE.rpartition('/')[0]}/no-such-image:1")
    try:
        await one.start(force_build=False)
    except Exception as error:  # what a user would see
        return {"error": type(error).__name__, "says": "image_not_found" in str(error), "left": one._sandbox_id}
    return {"error": "nothing"}


async def main(folder):
    one = made(folder / "one")
    await one.start(force_build=False)
    for case in (commands, timed_out, files, offline, no_image):
        try:
            saw = {"case": case.__name__, "saw": await case(one, folder)}
        except Exception as error:  # what a user would see
            saw = {"case": case.__name__, "error": [type(error).__name__, str(error)]}
        print(json.dumps(saw), flush=True)
    await one.stop(delete=True)
    print(json.dumps({"case": "stopped", "saw": {"left": one._sandbox_id}}), flush=True)


with tempfile.TemporaryDirectory() as place:
    asyncio.run(main(Path(place)))
