"""Timelines: every change with its moment, bounded, kept in tombstones and told as a story."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

from controlplane.lifecycle.record.timeline import noted, story, summary
from controlplane.model import EndCause, Lease, Moment, Sandbox, SandboxSpec, State, dump_tombstone, load_tombstone
from controlplane.model.states import Event
from controlplane.model.timeline import FIRST_KEPT, MOST_MOMENTS
from controlplane.store import Journal, JournaledStore
from controlplane.store.rows import dump, load
from tests.support.virtual_time import EPOCH_MS, VirtualClock
from tests.support.world import OWNER, SPEC, World, world


def sandbox() -> Sandbox:
    return Sandbox("sb-1", OWNER, SPEC, EPOCH_MS, EPOCH_MS + 1, "f")


def words(one: Sandbox) -> list[tuple[int, str, str]]:
    return [(told.at_ms - EPOCH_MS, told.state.value, told.word) for told in story(one)]


async def test_a_life_is_told_from_its_first_moment_to_its_last(plane: World) -> None:
    created = (await plane.create(OWNER, SPEC)).sandbox
    await asyncio.sleep(1)
    await plane.service.extend(OWNER, created.id, 7_200_000)
    ended = await plane.service.delete(OWNER, created.id, wait_s=60)
    assert words(ended) == [
        (0, "requested", "request"),
        (0, "queued", "queue"),
        (0, "starting", "start"),
        (120, "running", "ready"),
        (1120, "running", "extend"),
        (1120, "ending", "deleted"),
        (1170, "ended", "confirm"),
    ]
    assert [told.after_ms for told in story(ended)] == [0, 0, 0, 120, 1000, 0, 50]
    assert summary(created) == "It runs."
    assert summary(ended) == "It ended: it was deleted by its owner."
    assert story(ended)[-2].text == "The sandbox was deleted by its owner (alice)"


def test_a_claim_is_told_where_it_was() -> None:
    warm = replace(sandbox(), pool="p", timeline=(Moment(EPOCH_MS + 5, State.WARM, "warm"),))
    claimed = replace(warm, state=State.RUNNING, claimed_at_ms=EPOCH_MS + 90)
    assert words(claimed) == [(0, "requested", "request"), (5, "warm", "warm"), (90, "running", "claim")]


def test_a_timeline_is_bounded_and_keeps_its_beginning_and_its_end() -> None:
    one = sandbox()
    for number in range(10 * MOST_MOMENTS):
        one = noted(one, EPOCH_MS + number, f"word {number}")
        assert len(one.timeline) <= MOST_MOMENTS
    numbers = [moment.at_ms - EPOCH_MS for moment in one.timeline]
    assert numbers[:FIRST_KEPT] == list(range(FIRST_KEPT))
    assert numbers[FIRST_KEPT:] == list(range(10 * MOST_MOMENTS - MOST_MOMENTS + FIRST_KEPT, 10 * MOST_MOMENTS))


def test_the_same_thing_again_moves_its_moment() -> None:
    one = sandbox()
    for number in range(1000):
        one = noted(one, EPOCH_MS + number, "extend")
    assert one.timeline == (Moment(EPOCH_MS + 999, State.REQUESTED, "extend"),)


def test_it_is_in_records_and_in_tombstones() -> None:
    end = EndCause("deleted", "d", EPOCH_MS + 9, OWNER)
    one = replace(noted(sandbox(), EPOCH_MS + 7, Event.QUEUE), state=State.ENDED, end=end)
    assert load(dump(one)) == one
    kept = load_tombstone(json.loads(json.dumps(dump_tombstone(one))))
    assert kept is not None
    assert kept.timeline == one.timeline


def test_a_record_of_before_there_were_timelines_has_a_story_too() -> None:
    end = EndCause("oom_killed", "too much", EPOCH_MS + 9, "engine")
    body = json.loads(dump(replace(sandbox(), state=State.ENDED, end=end)))
    del body["timeline"]
    one = load(json.dumps(body))
    assert words(one) == [(0, "requested", "request"), (9, "ending", "oom_killed")]


async def test_it_outlives_a_restart(tmp_path: Path) -> None:
    clock, journal = VirtualClock(), Journal(tmp_path / "ends")
    async with world(clock=clock, store=JournaledStore(clock, journal)) as plane:
        created = (await plane.create(OWNER, SPEC)).sandbox
        ended = await plane.service.delete(OWNER, created.id, wait_s=60)
    async with world(clock=clock, store=JournaledStore(clock, journal)) as plane:
        again = await plane.service.get(OWNER, created.id)
    # The confirmation is not journaled: the end is what counts.
    assert again.timeline == ended.timeline[:-1]


def test_a_lease_is_bound_late() -> None:
    leased = SPEC.model_copy(update={"lease": Lease(name="a", ttl_ms=1000), "idle_timeout_ms": 1000})
    assert leased.template_hash() == SPEC.template_hash()
    assert leased.fingerprint() == SPEC.model_copy(update={"idle_timeout_ms": 1000}).fingerprint()
    assert leased.fingerprint() != SPEC.fingerprint()
    assert SandboxSpec.model_validate(json.loads(leased.model_dump_json())) == leased
