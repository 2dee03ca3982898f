"""The transition table, for every sequence of events."""

from hypothesis import given
from hypothesis import strategies as st

from controlplane.lifecycle.states import TRANSITIONS, Change, Effect, Event, apply, step
from controlplane.model import EndCause, Sandbox, State
from tests.support.world import SPEC

END = EndCause("deleted", "d", 1, "alice")
ENDS = (Event.END, Event.FAIL)
EVENTS = st.lists(st.sampled_from(Event), max_size=40)
NEW = Sandbox("sb-1", "alice", SPEC, 0, 1, "f", idempotency_key="k")


def play(events: list[Event]) -> tuple[Sandbox, list[Effect]]:
    sandbox = NEW
    performed: list[Effect] = []
    for event in events:
        applied = apply(sandbox, event, Change(end=END if event in ENDS else None))
        if applied is not None:
            sandbox, effects = applied
            performed += effects
    return sandbox, performed


@given(EVENTS)
def test_quota_is_freed_once_and_exactly_when_the_sandbox_is_not_counted(events: list[Event]) -> None:
    sandbox, performed = play(events)
    assert performed.count(Effect.FREE) == (0 if sandbox.state.counted else 1)


@given(EVENTS)
def test_every_effect_happens_at_most_once(events: list[Event]) -> None:
    _, performed = play(events)
    assert len(performed) == len(set(performed))


@given(EVENTS, EVENTS)
def test_nothing_leaves_the_end(before: list[Event], after: list[Event]) -> None:
    ended, _ = play([*before, Event.END, Event.CONFIRM])
    assert ended.state is State.ENDED
    for event in after:
        assert apply(ended, event, Change(end=END)) is None


@given(EVENTS)
def test_from_everywhere_a_delete_leads_to_the_end(events: list[Event]) -> None:
    sandbox, _ = play([*events, Event.END, Event.CONFIRM])
    assert sandbox.state is State.ENDED
    assert sandbox.end == END


@given(EVENTS)
def test_what_the_cluster_may_hold_is_stopped(events: list[Event]) -> None:
    _, performed = play([*events, Event.END])
    begun = play(events)[0].state in (State.STARTING, State.RUNNING, State.ENDING) or Effect.STOP in play(events)[1]
    assert (Effect.STOP in performed) == begun


@given(EVENTS)
def test_the_first_cause_stays(events: list[Event]) -> None:
    sandbox, _ = play([*events, Event.END])
    other = EndCause("oom_killed", "x", 2, "engine")
    assert apply(sandbox, Event.END, Change(end=other)) is None


@given(EVENTS)
def test_versions_grow_by_one_with_every_change(events: list[Event]) -> None:
    sandbox = NEW
    for event in events:
        applied = apply(sandbox, event, Change(end=END if event in ENDS else None))
        if applied is not None:
            assert applied[0].version == sandbox.version + 1
            sandbox = applied[0]


def test_an_end_is_legal_in_every_state_that_is_not_one() -> None:
    for state in State:
        assert (step(state, Event.END) is not None) == state.counted


def test_every_state_can_be_reached() -> None:
    reached = {State.REQUESTED}
    for _ in State:
        reached |= {taken.state for (state, _), taken in TRANSITIONS.items() if state in reached}
    assert reached == set(State)
