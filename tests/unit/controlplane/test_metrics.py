"""The control plane's metrics: as the table says, of a size that sandboxes have no part in."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from controlplane.errors import TABLE
from controlplane.lifecycle.admission.quotas import DeclaredQuota
from controlplane.lifecycle.record.population import DOUBTED_AFTER_MS, DOUBTED_AT_ONCE, Population
from controlplane.lifecycle.record.transition import Transition
from controlplane.model import EndCause, Quota, Sandbox, SandboxSpec, State
from controlplane.telemetry import Levels, Metrics, QuotaLevels
from controlplane.telemetry.declared import MOST, OTHERS
from tests.observability.table import misfits
from tests.support.world import OWNER, SPEC, world

ACCEPT = "application/openmetrics-text; version=1.0.0"
NOW_MS = 10_000_000
LEVELS = Levels({}, 0, 0, 0)


def text_of(metrics: Metrics, levels: Levels = LEVELS, accept: str = ACCEPT) -> str:
    return metrics.render(levels, accept)[0].decode()


def samples(text: str) -> dict[str, list[Sample]]:
    return {family.name: family.samples for family in text_string_to_metric_families(text)}  # type: ignore[no-untyped-call]


def sandbox(number: int, state: State = State.RUNNING, **more: Any) -> Sandbox:
    spec = SandboxSpec(image="a")
    made_ms = NOW_MS - 1000 * number
    return Sandbox(f"sb-{number:016x}", f"o{number % 300}", spec, made_ms, NOW_MS * 2, "f", state=state, **more)


def known(*sandboxes: Sandbox) -> Population:
    population = Population()
    for one in sandboxes:
        population.on(Transition.of(None, one, here=True))
    return population


def full(sandboxes: int, names: int) -> tuple[Metrics, Levels]:
    """As after a life with so many sandboxes, owners and pools."""
    metrics = Metrics()
    population = known(*map(sandbox, range(sandboxes)))
    pools = {f"pool-{n}": {"wanted": 2, "ready": 1, "starting": 1, "outdated": 0} for n in range(names)}
    quotas = {f"o{n}": QuotaLevels({"sandboxes": 1}, {"sandboxes": 2}) for n in range(names)}
    for number in range(sandboxes):
        metrics.phase("total", number, "cold", f"sb-{number:016x}")
        metrics.created(f"pool-{number % names}", "none_ready")
        metrics.ended(list(TABLE)[number % len(TABLE)], f"o{number % names}")
    levels = Levels(
        {State.RUNNING: sandboxes},
        0,
        0,
        0,
        pools=pools,
        oldest_ms=population.oldest_ms(NOW_MS),
        owners=population.owners(),
        quotas=quotas,
    )
    return metrics, levels


def test_at_the_start_and_after_much_it_is_what_the_table_says() -> None:
    metrics, levels = full(5_000, 300)
    metrics.image_store("node", 1, 2)
    assert misfits("controlplane", text_of(metrics, levels)) == []
    assert misfits("controlplane", text_of(metrics, levels, "text/plain")) == []


def test_five_thousand_sandboxes_add_no_series_and_no_id() -> None:
    few, many = full(10, 1), full(5_000, 1)
    count = [sum(map(len, samples(text_of(*one)).values())) for one in (few, many)]
    # The few have not had every code as the end of an owner's sandbox.
    assert count[1] - count[0] <= 300 + 4
    plain = text_of(*many, accept="")
    assert "sb-" not in plain
    assert len(text_of(*many)) < 2_000_000


def test_names_beyond_the_first_hundred_are_told_together() -> None:
    told = samples(text_of(*full(5_000, 300)))
    pools = {one.labels["pool"] for one in told["rollbox_pool_sandboxes"]}
    assert len(pools) == MOST + 1
    ready = {one.labels["pool"]: one.value for one in told["rollbox_pool_sandboxes"] if one.labels["what"] == "ready"}
    assert ready[OTHERS] == 300 - MOST
    for family in ("rollbox_owner_sandboxes", "rollbox_owner_ends", "rollbox_creates"):
        label = "pool" if family == "rollbox_creates" else "owner"
        assert len({one.labels[label] for one in told[family]}) <= MOST + 2
    assert sum(one.value for one in told["rollbox_owner_sandboxes"]) == 5_000
    assert len(text_of(*full(5_000, 300))) < 2_000_000


def test_the_slowest_start_of_a_bucket_names_its_sandbox_to_who_reads_openmetrics() -> None:
    metrics = Metrics()
    metrics.phase("total", 700, "cold", "sb-1")
    metrics.phase("total", 700, "pool")
    found = [one.exemplar for one in samples(text_of(metrics))["rollbox_create_phase_seconds"] if one.exemplar]
    assert [one.labels for one in found] == [{"sandbox_id": "sb-1"}]
    assert "sb-1" not in text_of(metrics, accept="text/plain")


def test_a_phase_that_is_not_in_the_table_is_refused() -> None:
    with pytest.raises(ValueError, match="thinking"):
        Metrics().phase("thinking", 1)


def test_what_is_another_replicas_to_tell_has_no_series() -> None:
    metrics = Metrics()
    metrics.render(Levels({}, 0, 0, 0, pools={"p": {"ready": 1}}, owners={"o": 1}))
    told = samples(text_of(metrics))
    assert not told["rollbox_pool_sandboxes"]
    assert not told["rollbox_owner_sandboxes"]


def test_masked_ends_are_told_by_code_and_fault() -> None:
    metrics = Metrics()
    metrics.ended("node_lost", "alice")
    metrics.ended("oom_killed", "alice")
    metrics.ended("oom_killed")
    ends = [one for one in samples(text_of(metrics))["rollbox_sandbox_ends"] if one.value]
    told = {(one.labels["cause"], one.labels["fault"], one.labels["masked"]): one.value for one in ends}
    assert told == {("node_lost", "platform", "true"): 1, ("oom_killed", "workload", "false"): 2}
    by_owner = {
        (one.labels["owner"], one.labels["fault"]): one.value for one in samples(text_of(metrics))["rollbox_owner_ends"]
    }
    assert by_owner == {("alice", "platform"): 1, ("alice", "workload"): 1}


def test_the_oldest_of_a_state_is_told_until_it_leaves_it() -> None:
    end = EndCause("deleted", "d", NOW_MS - 7_000, "alice")
    population = known(sandbox(3), sandbox(9), sandbox(5, State.QUEUED), sandbox(60, State.ENDING, end=end))
    assert population.oldest_ms(NOW_MS) == {State.RUNNING: 9_000, State.QUEUED: 5_000, State.ENDING: 7_000}
    assert population.owners() == {"o3": 1, "o9": 1, "o5": 1}
    population.on(Transition.of(None, sandbox(60, State.ENDED, end=end), here=False))
    population.forget(sandbox(9).id)
    assert population.oldest_ms(NOW_MS) == {State.RUNNING: 3_000, State.QUEUED: 5_000}


def test_only_what_should_have_changed_long_ago_is_doubted_and_not_all_at_once() -> None:
    late_s = DOUBTED_AFTER_MS // 1000
    late = [sandbox(late_s + n, State.STARTING) for n in range(1, 20)]
    population = known(sandbox(late_s * 9), sandbox(late_s - 1, State.STARTING), *late)
    oldest = [one.id for one in reversed(late)][:DOUBTED_AT_ONCE]
    assert population.doubtful(NOW_MS) == oldest


async def test_a_create_that_waits_for_room_is_told_with_what_was_missing() -> None:
    async with world() as plane:
        await plane.service.quotas.declare(_quota(1))
        first = (await plane.create(OWNER, SPEC)).sandbox
        waits = asyncio.create_task(plane.create(OWNER, SPEC))
        await asyncio.sleep(20)
        levels = await plane.service.levels()
        assert levels.creates_waiting == 1
        await plane.service.delete(OWNER, first.id)
        await waits
        told = samples(text_of(plane.deps.metrics, await plane.service.levels()))["rollbox_create_wait_seconds"]
        (wait,) = [one for one in told if one.name.endswith("_sum") and one.value]
        assert wait.labels == {"room": "sandboxes", "outcome": "admitted"}
        assert 19 < wait.value < 22


async def test_use_of_quotas_is_told_by_the_replica_that_reads_it() -> None:
    async with world() as plane:
        await plane.service.quotas.declare(_quota(3))
        await plane.create(OWNER, SPEC)
        await asyncio.sleep(25)
        levels = await plane.service.levels()
        assert levels.quotas[OWNER].used["sandboxes"] == 1
        assert levels.quotas[OWNER].limits == {**asdict(Quota()), "sandboxes": 3}
        assert levels.owners == {OWNER: 1}


def _quota(sandboxes: int) -> DeclaredQuota:
    return DeclaredQuota(owner=OWNER, sandboxes=sandboxes)
