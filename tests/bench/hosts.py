"""What harnesses pay for a sandbox: a call of the adapter against the SDK's, and whole rollouts against Docker's."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import statistics
from collections.abc import AsyncIterator, Mapping
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
    """What an adapter adds to a call, and what a sandbox costs before its first use.

    Cost: two minutes; environments of hosts that are not there are made.
    """
    records = []
    async for one in _hosts(stack, {}):
        records += [await one.calls(), *await one.unstarted()]
    return records


async def measure_rollouts(stack: Stack) -> list[Record]:
    """Whole rollouts, against the hosts' providers for Docker. Cost: half an hour on an idle machine."""
    records = []
    async with over_podman() as docker:
        compose = await answers(docker, "compose", "version")
        async for one in _hosts(stack, docker):
            records.append(await one.rollouts())
            if compose or one.name not in NEEDS_COMPOSE:
                records.append(await one.against_docker())
            else:
                print(f"{one.name}: no rollouts against Docker, since `docker compose` does not run here", flush=True)
    return records


async def _hosts(stack: Stack, more: Mapping[str, str]) -> AsyncIterator[_Host]:
    environ = {"ROLLBOX_URL": stack.url, "ROLLBOX_API_KEY": stack.api_key, "ROLLBOX_TEST_IMAGE": ON_ENGINE, **more}
    for host, version in HOSTS.items():
        doing(f"{host}, its environment")
        yield _Host(host, await asyncio.to_thread(integrations.environment, host, version), environ)


class _Host:
    def __init__(self, name: str, python: Path, environ: Mapping[str, str]) -> None:
        self.name = name
        self._python = python
        self._environ = environ

    async def calls(self) -> Record:
        doing(f"{self.name}, calls")
        said = [await self._said("exec") for _ in range(ROUNDS)]
        own, sdk = ([one[name][1] for one in said] for name in ("adapter_ms", "sdk_ms"))
        baseline = Baseline("the SDK's own exec of the same", statistics.median(sdk), of_rounds(sdk))
        return Record(
            f"exec of true through {self.name}, p50",
            statistics.median(own),
            "ms",
            f"200 pairs in turn in one sandbox, {ROUNDS} rounds, {WHERE}",
            baseline,
            distribution=of_rounds(own),
        )

    async def unstarted(self) -> list[Record]:
        said = await self._said("lazy")
        where = f"{said['made']} of them in one process"
        name = f"sandboxes of {self.name} before their first use"
        return [
            Record(f"threads of {name}", said["threads"], "threads", where),
            Record(f"memory of {name}, each", said["kib"] / said["made"], "KiB", where),
        ]

    async def rollouts(self) -> Record:
        took = [await self._rollouts("rollbox", 64, 64, number) for number in range(ROUNDS)]
        return Record(
            f"64 rollouts of {TURNS} turns through {self.name}",
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
            f"16 rollouts of {TURNS} turns, 8 at a time, through {self.name}",
            own["p50"],
            "s",
            f"{A_ROLLOUT}, {ROUNDS} rounds in turn, {WHERE}",
            Baseline(f"{self.name}'s provider for Docker, over Podman's socket", other["p50"], other),
            distribution=own,
        )

    async def _rollouts(self, provider: str, count: int, at_once: int, number: int) -> float:
        doing(f"{self.name}, {count} rollouts, {provider}, round {number + 1} of {ROUNDS}")
        said = await self._said("rollouts", provider, *map(str, (count, at_once, TURNS)))
        return float(said["seconds"])

    async def _said(self, *words: str) -> dict[str, Any]:
        program = str(PROGRAMS / f"{self.name}_calls.py")
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
