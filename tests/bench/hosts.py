"""What harnesses pay for a sandbox: a call of the adapter against the SDK's, and whole rollouts against Docker's."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.bench.docker_cli import answers, over_podman
from tests.bench.progress import doing
from tests.bench.record import Baseline, Record, of_rounds
from tests.support import integrations
from tests.support.images import ON_ENGINE
from tests.support.stack import Stack

# Each with the version of Python that its environment has, as its tests have it.
HOSTS = {"verifiers": "3.11", "harbor": "3.12", "inspect": "3.11"}
# Their providers for Docker run Compose.
NEEDS_COMPOSE = ("harbor", "inspect")
ROUNDS = 3
TURNS = 30
PROGRAMS = Path(__file__).parents[2] / "integrations/bench"
WHERE = "everything on this machine, of the engine that both have"
A_ROLLOUT = "a command a turn, from the first sandbox to the last end"


async def measure(stack: Stack) -> list[Record]:
    """The records of this scenario. Cost: half an hour; environments of hosts that are not there are made."""
    records = []
    environ = {"ROLLBOX_URL": stack.url, "ROLLBOX_API_KEY": stack.api_key, "ROLLBOX_TEST_IMAGE": ON_ENGINE}
    async with over_podman() as docker:
        compose = await answers(docker, "compose", "version")
        for host, version in HOSTS.items():
            doing(f"{host}, its environment")
            python = await asyncio.to_thread(integrations.environment, host, version)
            one = _Host(host, python, {**environ, **docker})
            records += [await one.calls(), *await one.unstarted(), await one.rollouts()]
            if compose or host not in NEEDS_COMPOSE:
                records.append(await one.against_docker())
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
        took = [await self._rollouts("rollbox", 64, 64, number) for number in range(ROUNDS)]
        return Record(
            f"64 rollouts of {TURNS} turns through {self._name}",
            statistics.median(took),
            "s",
            f"all at once, {A_ROLLOUT}, {ROUNDS} rounds, {WHERE}",
            distribution=of_rounds(took),
        )

    async def against_docker(self) -> Record:
        """Fewer rollouts, since over Podman's socket 64 at once do not end within minutes."""
        took: dict[str, list[float]] = {"rollbox": [], "docker": []}
        for number in range(ROUNDS):
            for provider, seconds in took.items():
                seconds.append(await self._rollouts(provider, 16, 8, number))
        own, other = of_rounds(took["rollbox"]), of_rounds(took["docker"])
        return Record(
            f"16 rollouts of {TURNS} turns, 8 at a time, through {self._name}",
            own["p50"],
            "s",
            f"{A_ROLLOUT}, {ROUNDS} rounds in turn, {WHERE}",
            Baseline(f"{self._name}'s provider for Docker, over Podman's socket", other["p50"], other),
            distribution=own,
        )

    async def _rollouts(self, provider: str, count: int, at_once: int, number: int) -> float:
        doing(f"{self._name}, {count} rollouts, {provider}, round {number + 1} of {ROUNDS}")
        said = await self._said("rollouts", provider, *map(str, (count, at_once, TURNS)))
        return float(said["seconds"])

    async def _said(self, *words: str) -> dict[str, Any]:
        program = str(PROGRAMS / f"{self._name}_calls.py")
        child = await asyncio.create_subprocess_exec(
            str(self._python), program, *words, env={**os.environ, **self._environ}, stdout=asyncio.subprocess.PIPE
        )
        try:
            out, _ = await child.communicate()
        finally:
            if child.returncode is None:
                # It ends the sandboxes of both sides before it goes.
                child.send_signal(signal.SIGINT)
                await child.wait()
        if child.returncode:
            raise RuntimeError(f"{program} {' '.join(words)} has failed")
        said: dict[str, Any] = json.loads(out.splitlines()[-1])
        return said
