"""One benchmark from its plan to its report, with everything deleted at its end."""

from __future__ import annotations

import contextlib
import platform
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rollbox._problem import SandboxError
from rollbox._version import __version__
from rollbox.bench import machine
from rollbox.bench.arrivals import one_by_one
from rollbox.bench.ground import Ground, Told
from rollbox.bench.kubectl import Kubectl
from rollbox.bench.measured import BenchReport, Measured
from rollbox.bench.plan import chosen, planned
from rollbox.bench.sample import Sample
from rollbox.bench.scenarios import Scenario, scenarios
from rollbox.report import words

if TYPE_CHECKING:
    from rollbox.client import Client
    from rollbox.options import ResourceOptions

_ROUND_TRIPS = 30


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be measured.

    Attributes:
        image: of all sandboxes.
        resources: of all sandboxes.
        names: of the scenarios; empty: all that fit.
        most: sandboxes at the same time.
        seconds: how long the calls of a scenario may take.
        kubectl: for the baseline; None: none is wanted.
        repeat: the command line that does the same again, for the report.
    """

    image: str
    resources: ResourceOptions
    names: Sequence[str] = ()
    most: int = 300
    seconds: float = 60.0
    kubectl: Kubectl | None = None
    repeat: str = ""


async def bench(client: Client, wish: Wish, told: Told) -> BenchReport:
    """Measure an installation.

    Args:
        client: of the installation.
        wish: what to measure.
        told: whom to tell what will be created, and how far it is.

    Raises:
        SandboxError: nothing was measured: the wish does not fit, or its first sandbox did not start.
    Cancel safety: what was created is deleted first.
    """
    began_ms, began_s, load = time.time() * 1000, time.monotonic(), machine.load()
    wanted = chosen(scenarios(wish.most), wish.names)
    count = max(one.sandboxes for one in wanted.values())
    foreseen = await client.preflight(wish.image, count, **wish.resources)
    plan = planned(wanted, foreseen, named=bool(wish.names))
    run = f"bench-{secrets.token_hex(4)}"
    told.say(plan.text(run, wish.image, wish.seconds))
    ground = Ground(client, wish.image, wish.resources, run, wish.seconds, told, wish.kubectl, foreseen.warm)
    left = 1
    try:
        first_ms, missing = await _first(ground)
        info = await _platform(client)
        trips = await _round_trips(client)
        measured = [await _measured(name, one, ground, missing) for name, one in plan.scenarios.items()]
    finally:
        left = await ground.clear()
        if left:
            told.say(f"{left} sandboxes of {run} are left: `rollbox delete --label rollbox.run={run}`")
    measured += [Measured(name, wanted[name].says, missing=why) for name, why in plan.left_out.items()]
    conditions = {
        "image": wish.image,
        "each sandbox": _words(wish.resources) + (f"; has set aside {foreseen.requests}" if foreseen.requests else ""),
        "ready in pools at the beginning": str(foreseen.warm),
        "first sandbox, with its pull": words.duration(first_ms),
        "time for each scenario": f"{wish.seconds:g} s",
        "round trip to the gateway (GET /v1/info)": f"p50 {words.duration(trips.quantile(0.5))}, "
        f"max {words.duration(trips.max_ms)} of {trips.count}",
        "load of the measuring machine": f"{load:.2f} at the beginning, {machine.load():.2f} at the end",
    }
    return BenchReport(
        run=run,
        began_at_ms=round(began_ms),
        took_s=time.monotonic() - began_s,
        platform={**info, **(await wish.kubectl.versions() if wish.kubectl and not missing else {})},
        client=_client(),
        conditions=conditions,
        repeat=wish.repeat,
        scenarios=tuple(measured),
        left=left,
    )


async def _first(ground: Ground) -> tuple[float, str]:
    """Start one sandbox, so that no scenario pulls its image: how long it took, and why there is no baseline."""
    ground.told.begin("the first sandbox, which pulls the image where it is not there", 1)
    began_s = time.perf_counter()
    # The pull has the time that a create has by default.
    async with await replace(ground, seconds=120.0).create() as sandbox:
        took_ms = (time.perf_counter() - began_s) * 1e3
        ground.told.step()
        missing = "" if ground.kubectl is None else await ground.kubectl.why_not(sandbox.id)
    if missing:
        ground.told.say(f"there is no kubectl exec to compare with: {missing}")
        ground.kubectl = None
    return took_ms, missing


async def _measured(name: str, scenario: Scenario, ground: Ground, missing: str) -> Measured:
    """Run one scenario; what breaks costs its own figures only."""
    try:
        found = await scenario.measure(ground)
    except SandboxError as error:
        ground.told.say(f"{name} broke: {error.code}: {error.detail}")
        return Measured(name, scenario.says, missing=f"{error.code}: {error.detail}", fault=error.fault)
    told = f"no kubectl exec: {missing}" if missing and scenario.compared else ""
    return Measured(name, scenario.says, found, told)


async def _platform(client: Client) -> dict[str, str]:
    told = await client.info()
    engine = told.get("engine") or {}
    found = {name: str(told.get(name, "")) for name in ("version", "backend", "isolation", "network")}
    found["engine"] = " ".join(filter(None, (engine.get("name"), engine.get("version"))))
    with contextlib.suppress(SandboxError):
        room = await client.capacity()
        if room.known:
            cores = sum(one.allocatable.cpu_millicores for one in room.nodes) / 1000
            memory = sum(one.allocatable.memory_bytes for one in room.nodes) >> 30
            found["nodes for sandboxes"] = f"{room.nodes_in_all}, with {cores:g} cores and {memory} GiB"
    return {name: value for name, value in found.items() if value}


async def _round_trips(client: Client) -> Sample:
    async def call(_: int) -> object:
        return await client.info()

    return Sample.of(await one_by_one(_ROUND_TRIPS, call))


def _words(resources: ResourceOptions) -> str:
    """Write what was asked for, as it is typed."""
    given = {name: value for name, value in resources.items() if value}
    return ", ".join(f"{k} {':'.join(v) if isinstance(v, tuple) else v}" for k, v in given.items())


def _client() -> dict[str, str]:
    here = machine.hardware()
    return {
        "rollbox": __version__,
        "python": platform.python_version(),
        "machine": f"{here['cpu']}, {here['cores']} cores, {here['memory_mib']} MiB",
        "kernel": f"{platform.system()} {here['kernel']}",
    }
