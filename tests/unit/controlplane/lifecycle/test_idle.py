"""Idle timeouts: what nobody uses ends, and no silence of a part of the platform counts as nobody."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from controlplane.cluster import Health
from controlplane.errors import Problem
from controlplane.lifecycle import Options
from controlplane.lifecycle.expiry.gateway_reports import MISSING_MS, MOST_GATEWAYS, STEADY_MS, GatewayReports
from controlplane.model import Sandbox, SandboxSpec, State
from tests.support.fake_cluster import FakeCluster, FakeSidecars
from tests.support.reports import reporting
from tests.support.virtual_time import EPOCH_MS, VirtualClock
from tests.support.world import OWNER, World, world

IDLE_S = 100
IDLE = SandboxSpec(image="a", idle_timeout_ms=IDLE_S * 1000)
MISSING_S = MISSING_MS / 1000


@asynccontextmanager
async def running(spec: SandboxSpec = IDLE, **more: object) -> AsyncIterator[tuple[World, Sandbox]]:
    async with world(**more) as plane:  # type: ignore[arg-type]
        yield plane, (await plane.create(OWNER, spec)).sandbox


async def state(plane: World, sandbox: Sandbox) -> State:
    return (await plane.service.get(OWNER, sandbox.id)).state


async def test_what_nobody_uses_ends_and_says_so() -> None:
    async with running() as (plane, sandbox), reporting(plane):
        await asyncio.sleep(IDLE_S)
        assert await state(plane, sandbox) is State.RUNNING
        await asyncio.sleep(MISSING_S + 1)
        with pytest.raises(Problem, match=r"idle_expired: it was idle for 108 s, its idle timeout is 100 s: no exec"):
            await plane.service.alive(OWNER, sandbox.id)


async def test_what_is_reported_as_used_is_not_even_asked() -> None:
    async with running() as (plane, sandbox):
        async with reporting(plane, used=lambda: [(sandbox.id, 100), ("sb-unknown", 0)]):
            await asyncio.sleep(20 * IDLE_S)
            assert plane.sidecars.healths == 0
        async with reporting(plane):
            await asyncio.sleep(2 * IDLE_S)
            # The sidecar has seen nothing of what was reported.
            assert await state(plane, sandbox) is State.ENDED


async def test_use_that_no_report_tells_of_counts_all_the_same() -> None:
    async with running() as (plane, sandbox), reporting(plane):
        for _ in range(40):
            await asyncio.sleep(IDLE_S / 2)
            plane.sidecars.use(sandbox.address or "")
        assert await state(plane, sandbox) is State.RUNNING
        await asyncio.sleep(2 * IDLE_S)
        assert await state(plane, sandbox) is State.ENDED


async def test_a_command_that_runs_is_use_though_nobody_is_attached() -> None:
    async with running() as (plane, sandbox), reporting(plane):
        plane.sidecars.running.add(sandbox.address or "")
        await asyncio.sleep(20 * IDLE_S)
        assert await state(plane, sandbox) is State.RUNNING


async def test_without_gateways_nothing_is_idle() -> None:
    async with running() as (plane, sandbox):
        await asyncio.sleep(20 * IDLE_S)
        assert await state(plane, sandbox) is State.RUNNING
        assert plane.sidecars.healths == 0


async def test_the_time_in_which_a_gateway_was_away_does_not_count() -> None:
    async with running() as (plane, sandbox):
        async with reporting(plane):
            await asyncio.sleep(IDLE_S - 1)
        await asyncio.sleep(10 * IDLE_S)
        async with reporting(plane):
            await asyncio.sleep(IDLE_S)
            assert await state(plane, sandbox) is State.RUNNING, "nobody could have called while it was away"
            await asyncio.sleep(IDLE_S)
            assert await state(plane, sandbox) is State.ENDED


async def test_one_gateway_of_two_that_goes_missing_begins_the_time_anew() -> None:
    async with running() as (plane, sandbox), reporting(plane, "gw-1"):
        async with reporting(plane, "gw-2"):
            await asyncio.sleep(IDLE_S - 1)
        await asyncio.sleep(IDLE_S)
        assert await state(plane, sandbox) is State.RUNNING
        await asyncio.sleep(IDLE_S)
        assert await state(plane, sandbox) is State.ENDED


async def test_a_control_plane_that_was_restarted_begins_anew_and_asks() -> None:
    cluster, sidecars = FakeCluster(), FakeSidecars()
    async with running(cluster=cluster, sidecars=sidecars) as (plane, sandbox), reporting(plane):
        await asyncio.sleep(IDLE_S - 1)
    async with world(cluster, sidecars) as plane, reporting(plane):
        await asyncio.sleep(IDLE_S)
        assert await state(plane, sandbox) is State.RUNNING
        await asyncio.sleep(MISSING_S + 1)
        assert await state(plane, sandbox) is State.ENDED


@pytest.mark.parametrize("silent", ["dead", "old"])
async def test_a_sidecar_that_says_nothing_ends_nothing(silent: str) -> None:
    async with running() as (plane, sandbox), reporting(plane):
        plane.sidecars.knows_quiet = silent != "old"
        if silent == "dead":
            plane.sidecars.dead.add(sandbox.address or "")
        await asyncio.sleep(20 * IDLE_S)
        assert await state(plane, sandbox) is State.RUNNING


async def test_an_extension_is_a_sign_of_life() -> None:
    async with running() as (plane, sandbox), reporting(plane):
        await asyncio.sleep(IDLE_S - 1)
        await plane.service.extend(OWNER, sandbox.id, 3_600_000)
        await asyncio.sleep(IDLE_S)
        assert await state(plane, sandbox) is State.RUNNING
        await asyncio.sleep(2 * MISSING_S)
        assert await state(plane, sandbox) is State.ENDED


async def test_the_installations_default_is_what_a_sandbox_is_promised() -> None:
    default = Options(idle_timeout_ms=50_000)
    async with running(SandboxSpec(image="a"), options=default) as (plane, sandbox), reporting(plane):
        assert sandbox.spec.idle_timeout_ms == 50_000
        again = await plane.create(OWNER, SandboxSpec(image="a", idle_timeout_ms=90_000))
        assert again.sandbox.spec.idle_timeout_ms == 90_000
        await asyncio.sleep(70)
        assert await state(plane, sandbox) is State.ENDED
        assert await state(plane, again.sandbox) is State.RUNNING


async def test_none_by_default_means_none() -> None:
    async with running(SandboxSpec(image="a", ttl_ms=7 * 24 * 3_600_000)) as (plane, sandbox), reporting(plane):
        await asyncio.sleep(24 * 3600)
        assert await state(plane, sandbox) is State.RUNNING


async def test_a_herd_that_falls_idle_together_is_asked_a_few_at_a_time() -> None:
    most = 0

    class Slow(FakeSidecars):
        async def health(self, address: str, token: str) -> Health:
            nonlocal most
            self.running.add(token)
            most = max(most, len(self.running))
            await asyncio.sleep(0.01)
            self.running.discard(token)
            return replace(await super().health(address, token), running_execs=0)

    async with world(sidecars=Slow(), options=Options(starts_in_flight=500)) as plane, reporting(plane):
        await asyncio.gather(*(plane.create(OWNER, IDLE) for _ in range(300)))
        await asyncio.sleep(2 * IDLE_S)
        assert not await plane.service.find(OWNER, {})
        assert most == 16


async def test_a_vigil_judges_from_the_later_of_the_two_beginnings() -> None:
    reports = GatewayReports(VirtualClock())
    assert reports.judges_from(EPOCH_MS, 1000) is None
    reports.report("gw-1")
    assert reports.judges_from(EPOCH_MS - 500_000, 1000) == EPOCH_MS + 1000 + STEADY_MS
    assert reports.judges_from(EPOCH_MS + 500, 1000) == EPOCH_MS + 1500 + STEADY_MS
    await asyncio.sleep(5)
    reports.restart_quiet_time()
    assert reports.judges_from(EPOCH_MS, 1000) == EPOCH_MS + 6_000 + STEADY_MS
    await asyncio.sleep(MISSING_S)
    assert reports.judges_from(EPOCH_MS, 1000) is None, "nobody has reported for too long"


async def test_a_late_report_of_one_gateway_leaves_the_longer_wait() -> None:
    reports = GatewayReports(VirtualClock())
    for at_s in range(0, 60, 4):
        reports.report("gw-1")
        if at_s % 12 == 0:
            reports.report("late")
        await asyncio.sleep(4)
    assert reports.judges_from(EPOCH_MS, 50_000) == EPOCH_MS + 50_000 + MISSING_MS
    # From when it has been late for the last time the shorter one counts.
    assert reports.judges_from(EPOCH_MS + 60_000, 50_000) == EPOCH_MS + 110_000 + STEADY_MS


async def test_gateways_that_come_and_go_do_not_pile_up() -> None:
    reports = GatewayReports(VirtualClock())
    for number in range(3 * MOST_GATEWAYS):
        reports.report(f"gw-{number}")
    assert len(reports._seen_ms) == MOST_GATEWAYS
    await asyncio.sleep(2 * MISSING_S)
    reports.report("gw-1")
    assert len(reports._seen_ms) == 1


async def test_what_is_extended_before_its_end_is_stored_lives_on() -> None:
    wish = SandboxSpec(image="a", ttl_ms=60_000)
    async with running(wish) as (plane, sandbox):
        store = plane.deps.store
        replace_in = store.replace

        async def extended_before_it(after: Sandbox, expected_version: int) -> bool:
            store.replace = replace_in  # type: ignore[method-assign]
            await plane.service.extend(OWNER, sandbox.id, 120_000)
            return await store.replace(after, expected_version)

        store.replace = extended_before_it  # type: ignore[assignment, method-assign]
        await asyncio.sleep(100)
        assert await state(plane, sandbox) is State.RUNNING
        await asyncio.sleep(100)
        assert await state(plane, sandbox) is State.ENDED


async def test_what_is_stored_while_it_is_judged_has_it_judged_anew() -> None:
    async with running() as (plane, sandbox), reporting(plane):
        store = plane.deps.store
        replace_in = store.replace
        tried: list[State] = []

        async def opened_before_it(after: Sandbox, expected_version: int) -> bool:
            tried.append(after.state)
            store.replace = replace_in  # type: ignore[method-assign]
            await plane.service.open_port(OWNER, sandbox.id, 80, public=True)
            return await store.replace(after, expected_version)

        store.replace = opened_before_it  # type: ignore[assignment, method-assign]
        await asyncio.sleep(IDLE_S + STEADY_MS / 1000 + 0.5)
        assert tried == [State.ENDING]
        assert await state(plane, sandbox) is State.RUNNING
        await asyncio.sleep(2)
        assert await state(plane, sandbox) is State.ENDED
