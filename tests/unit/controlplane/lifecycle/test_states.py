"""The transition table, for every sequence of events."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.lifecycle.record.transition import Effect, effects_of
from controlplane.model import RESOURCES, EndCause, Sandbox, SandboxSpec, State, Usage
from controlplane.model.states import TRANSITIONS, Change, Event, apply
from tests.support.world import SPEC

END = EndCause("deleted", "d", 1, "alice")
ENDS = (Event.END, Event.FAIL, Event.RETIRE)
# Nobody reports `WARM`: a start reports `READY`, and what is a pool's is warm then.
REPORTED: list[Event] = [event for event in Event if event is not Event.WARM]
EVENTS = st.lists(st.sampled_from(REPORTED), max_size=40)
NEW = Sandbox("sb-1", "alice", SPEC, 0, 1, "f", idempotency_key="k")
POOLED = Sandbox("sb-2", "pool:p", SPEC, 0, 1, "f", pool="p")
WISH = Sandbox("sb-3", "bob", SandboxSpec(image=SPEC.image, cwd="/w"), 7, 8, "g", idempotency_key="b")


def happen(sandbox: Sandbox, event: Event) -> Sandbox:
    """The record after an event as the control plane reports it: an end has a cause, and a claim a create."""
    if event is Event.CLAIM:
        return apply(sandbox, event, Change(wish=WISH, claimed_at_ms=9))
    return apply(sandbox, event, Change(end=END if event in ENDS else None))


def play(events: list[Event], sandbox: Sandbox = NEW) -> tuple[Sandbox, list[Effect]]:
    performed: list[Effect] = []
    for event in events:
        after = happen(sandbox, event)
        if after is not sandbox:
            performed += effects_of(sandbox, after)
            sandbox = after
    return sandbox, performed


@given(EVENTS)
def test_quota_is_freed_once_and_exactly_when_the_sandbox_is_not_counted(events: list[Event]) -> None:
    sandbox, performed = play(events)
    assert performed.count(Effect.FREE) == (0 if sandbox.state.counted else 1)


@given(EVENTS)
def test_every_effect_happens_at_most_once_but_for_the_route_of_who_has_claimed_it(events: list[Event]) -> None:
    for new in (NEW, POOLED):
        _, performed = play(events, new)
        for effect in set(performed):
            assert performed.count(effect) <= 1 + (effect is Effect.ROUTE and new is POOLED)


@given(EVENTS)
def test_only_a_claim_makes_a_pools_sandbox_run(events: list[Event]) -> None:
    without: list[Event] = [event for event in events if event is not Event.CLAIM]
    assert play(without, POOLED)[0].state is not State.RUNNING
    assert play(events)[0].state is not State.WARM


def test_what_is_claimed_cannot_be_retired() -> None:
    warm, _ = play([Event.QUEUE, Event.START, Event.READY], POOLED)
    claimed, _ = play([Event.CLAIM], warm)
    assert (warm.state, claimed.state) == (State.WARM, State.RUNNING)
    assert apply(claimed, Event.RETIRE, Change(end=END)) is claimed
    assert play([Event.RETIRE], warm)[0].state is State.ENDING


def test_a_claim_binds_what_the_table_says_and_leaves_the_rest() -> None:
    warm = replace(play([Event.QUEUE, Event.START, Event.READY], POOLED)[0], address="a", kernel="k", ready_at_ms=5)
    claimed = happen(warm, Event.CLAIM)
    assert (claimed.state, claimed.version) == (State.RUNNING, warm.version + 1)
    assert (claimed.id, claimed.pool, claimed.address, claimed.created_at_ms) == ("sb-2", "p", "a", 0)
    assert (claimed.owner, claimed.spec, claimed.idempotency_key) == ("bob", WISH.spec, "b")
    assert (claimed.claimed_at_ms, claimed.claim_id, claimed.warm, claimed.unclaimed) == (9, "sb-3", True, False)
    with pytest.raises(ValueError, match="record of its create"):
        apply(warm, Event.CLAIM)


@given(EVENTS, EVENTS)
def test_nothing_leaves_the_end(before: list[Event], after: list[Event]) -> None:
    ended, _ = play([*before, Event.END, Event.CONFIRM])
    assert ended.state is State.ENDED
    for event in after:
        assert apply(ended, event, Change(end=END)) is ended


@given(EVENTS)
def test_from_everywhere_a_delete_leads_to_the_end(events: list[Event]) -> None:
    sandbox, _ = play([*events, Event.END, Event.CONFIRM])
    assert sandbox.state is State.ENDED
    assert sandbox.end == END


@given(EVENTS)
def test_what_the_cluster_may_hold_is_stopped(events: list[Event]) -> None:
    _, performed = play([*events, Event.END])
    held = (State.STARTING, State.WARM, State.RUNNING, State.ENDING)
    begun = play(events)[0].state in held or Effect.STOP in play(events)[1]
    assert (Effect.STOP in performed) == begun


@given(EVENTS)
def test_the_first_cause_stays(events: list[Event]) -> None:
    sandbox, _ = play([*events, Event.END])
    other = EndCause("oom_killed", "x", 2, "engine")
    assert apply(sandbox, Event.END, Change(end=other)) is sandbox


@given(EVENTS)
def test_versions_grow_by_one_with_every_change(events: list[Event]) -> None:
    sandbox = NEW
    for event in events:
        after = happen(sandbox, event)
        assert after is sandbox or after.version == sandbox.version + 1
        sandbox = after


def test_an_end_is_legal_in_every_state_that_is_not_one() -> None:
    for state in State:
        assert ((state, Event.END) in TRANSITIONS) == state.counted


def test_every_state_can_be_reached() -> None:
    reached = {State.REQUESTED}
    for _ in State:  # as many rounds as there can be steps in a row
        reached |= {after for (state, _), after in TRANSITIONS.items() if state in reached}
    assert reached == set(State)


@given(EVENTS)
def test_what_is_heard_without_its_past_has_every_effect_that_is_due(events: list[Event]) -> None:
    """A replica that has missed all but the last record does what the one that made the changes has done."""
    for new in (NEW, POOLED):
        sandbox, performed = play(events, new)
        due = set(performed) - ({Effect.ROUTE} if sandbox.end is not None else set())
        # A confirmed end has been taken off the cluster already.
        due -= {Effect.STOP} if sandbox.state is State.ENDED else set()
        assert effects_of(None, sandbox) == due


@pytest.mark.parametrize("before", [None, *State])
@pytest.mark.parametrize("after", State)
def test_room_is_made_by_an_end_and_by_a_start_that_is_over(before: State | None, after: State) -> None:
    known = None if before is None else replace(NEW, state=before)
    less = known is None or any(
        getattr(Usage.of(known), name) > getattr(Usage.of(replace(NEW, state=after)), name) for name in RESOURCES
    )
    if effects_of(known, replace(NEW, state=after)) & {Effect.FREE, Effect.SETTLE}:
        assert less
    elif before is not None and after is not State.REQUESTED:
        assert not less or after.unready


def test_what_gateways_know_of_a_sandbox_is_told_again_when_it_changes() -> None:
    running = play([Event.QUEUE, Event.START, Event.READY])[0]
    extended = replace(running, expires_at_ms=99, version=9)
    assert effects_of(running, extended) == frozenset()
    assert effects_of(running, running.with_port(80, public=True, now_ms=5)) == {Effect.ROUTE}
