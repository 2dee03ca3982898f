"""What harnesses pay for a sandbox: a call of the adapter against the SDK's, and whole rollouts against Docker's."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import statistics
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.bench.progress import doing
from tests.bench.record import Baseline, Record, of_rounds
from tests.support import integrations
from tests.support.images import ON_ENGINE
from tests.support.stack import Stack
from tests.support.waiting import until

# Each with the version of Python that its environment has, as its tests have it.
HOSTS = {"verifiers": "3.11", "harbor": "3.12", "inspect": "3.11"}
# Their providers for Docker run its command line, and Harbor's and inspect's Compose too, which Podman does not have.
NEEDS_COMPOSE = ("harbor", "inspect")
ROUNDS = 3
PROGRAMS = Path(__file__).parents[2] / "integrations/bench"
WHERE = "everything on this machine, of the engine that both have"


async def measure(stack: Stack) -> list[Record]:
    """The records of this scenario. Cost: half an hour; environments of hosts that are not there are made."""
    records = []
    environ = {"ROLLBOX_URL": stack.url, "ROLLBOX_API_KEY": stack.api_key, "ROLLBOX_TEST_IMAGE": ON_ENGINE}
    async with _docker() as docker:
        compose = await _answers({**environ, **docker}, "docker", "compose", "version")
        for host, version in HOSTS.items():
            doing(f"{host}, its environment")
            python = await asyncio.to_thread(integrations.environment, host, version)
            one = _Host(host, python, {**environ, **docker})
            records += [await one.calls(), *await one.unstarted()]
            if compose or host not in NEEDS_COMPOSE:
                records.append(await one.rollouts())
            else:
                print(f"{host}: no rollouts against Docker, since `docker compose` does not run here", flush=True)
    return records


class _Host:
    def __init__(self, name: str, python: Path, environ: Mapping[str, str]) -> None:
        self._name = name
        self._python = python
        self._environ = environ

    async def calls(self) -> Record:
        doing(f"{self._name}, calls")
        said = [await self._said("exec") for _ in range(ROUNDS)]
        own, sdk = ([one[name][1] for one in said] for name in ("adapter_ms", "sdk_ms"))
        baseline = Baseline("the SDK's own exec of the same", statistics.median(sdk), of_rounds(sdk))
        return Record(
            f"exec of true through {self._name}, p50",
            statistics.median(own),
            "ms",
            f"200 pairs in turn in one sandbox, {ROUNDS} rounds, {WHERE}",
            baseline,
            distribution=of_rounds(own),
        )

    async def unstarted(self) -> list[Record]:
        said = await self._said("lazy")
        where = f"{said['made']} of them in one process"
        name = f"sandboxes of {self._name} before their first use"
        return [
            Record(f"threads of {name}", said["threads"], "threads", where),
            Record(f"memory of {name}, each", said["kib"] / said["made"], "KiB", where),
        ]

    async def rollouts(self) -> Record:
        took: dict[str, list[float]] = {"rollbox": [], "docker": []}
        for number in range(ROUNDS):
            for provider, seconds in took.items():
                doing(f"{self._name}, rollouts, {provider}, round {number + 1} of {ROUNDS}")
                seconds.append((await self._said("rollouts", provider))["seconds"])
        own, other = of_rounds(took["rollbox"]), of_rounds(took["docker"])
        return Record(
            f"64 rollouts of 30 turns through {self._name}",
            own["p50"],
            "s",
            f"all at once, a command a turn, from the first sandbox to the last end, {ROUNDS} rounds in turn, {WHERE}",
            Baseline(f"{self._name}'s provider for Docker, over Podman's socket", other["p50"], other),
            distribution=own,
        )

    async def _said(self, *words: str) -> dict[str, Any]:
        program = str(PROGRAMS / f"{self._name}_calls.py")
        child = await asyncio.create_subprocess_exec(
            str(self._python), program, *words, env={**os.environ, **self._environ}, stdout=asyncio.subprocess.PIPE
        )
        out, _ = await child.communicate()
        if child.returncode:
            raise RuntimeError(f"{program} {' '.join(words)} has failed")
        said: dict[str, Any] = json.loads(out.splitlines()[-1])
        return said


@asynccontextmanager
async def _docker() -> AsyncIterator[dict[str, str]]:
    """What makes Docker's command line ask Podman, with the plugins that this machine has."""
    with TemporaryDirectory() as folder:
        address = f"unix://{folder}/docker.sock"
        service = await asyncio.create_subprocess_exec("podman", "system", "service", "--time=0", address)
        environ = {"DOCKER_HOST": address}
        try:
            if shutil.which("docker"):
                await until(lambda: _answers(environ, "docker", "version"))
            yield environ
        finally:
            service.terminate()
            await service.wait()


async def _answers(environ: Mapping[str, str], *command: str) -> bool:
    quiet = asyncio.subprocess.DEVNULL
    try:
        child = await asyncio.create_subprocess_exec(
            *command, env={**os.environ, **environ}, stdout=quiet, stderr=quiet
        )
    except FileNotFoundError:
        return False
    return await child.wait() == 0
