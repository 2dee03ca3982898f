"""What a replica remembers for a while: what weighs more, for how long, and how much of it."""

from dataclasses import replace

import pytest

from controlplane.lifecycle.record import unpersisted
from controlplane.lifecycle.record.timeline import noted
from controlplane.lifecycle.record.unpersisted import KEPT_MS, UnpersistedFacts
from controlplane.model import EndCause, Sandbox, SandboxSpec, State
from tests.support.virtual_time import VirtualClock

SPEC = SandboxSpec(image="a")


class MovedClock(VirtualClock):
    """Stands still until it is moved."""

    at_ms = 1_000_000

    def now_ms(self) -> int:
        return self.at_ms


def claimed(name: str = "sb-1", at_ms: int = MovedClock.at_ms) -> Sandbox:
    return Sandbox(name, "ann", SPEC, 0, 1 << 50, "f", state=State.RUNNING, version=5, pool="p", claimed_at_ms=at_ms)


def ended(name: str = "sb-1", at_ms: int = MovedClock.at_ms) -> Sandbox:
    return replace(claimed(name), state=State.ENDING, end=EndCause("deleted", "d", at_ms, "ann"))


WARM = replace(claimed(), owner="pool:p", state=State.WARM, claimed_at_ms=None)


def test_an_end_outweighs_a_claim_and_both_what_a_rebuild_reads() -> None:
    known = UnpersistedFacts(MovedClock())
    assert not known.outweighs(WARM)
    known.observe(claimed())
    assert known.outweighs(WARM)
    assert not known.outweighs(claimed())
    known.observe(ended())
    known.observe(claimed())
    assert known.outweighs(claimed())
    assert known.records == {"sb-1": ended()}


def test_an_end_that_was_heard_of_before_the_claims_answer_stays() -> None:
    known = UnpersistedFacts(MovedClock())
    known.observe(ended())
    known.hold(claimed())
    assert known.records == {"sb-1": ended()}


def test_what_is_neither_or_long_ago_is_not_kept() -> None:
    known = UnpersistedFacts(MovedClock())
    for one in (WARM, claimed(at_ms=1), ended(at_ms=1)):
        known.observe(one)
    assert known.records == {}


def test_the_newest_word_of_a_claim_is_kept_and_a_late_one_is_not() -> None:
    known = UnpersistedFacts(MovedClock())
    newer = replace(claimed(), version=6, public_ports=(7,))
    for one in (claimed(), newer, claimed()):
        known.observe(one)
    assert known.records == {"sb-1": newer}


def test_a_claim_is_kept_until_the_cluster_knows_of_it_and_a_while_longer() -> None:
    known = UnpersistedFacts(clock := MovedClock())
    known.hold(claimed())
    known.observe(claimed())
    clock.at_ms += 10 * KEPT_MS
    known.forget()
    assert "sb-1" in known.records
    known.persisted("sb-1")
    known.persisted("sb-2")
    clock.at_ms += KEPT_MS - 1
    known.forget()
    assert "sb-1" in known.records
    clock.at_ms += 1
    known.forget()
    assert known.records == {}


def test_an_end_that_is_heard_while_its_claim_is_old_is_kept_as_long() -> None:
    known = UnpersistedFacts(clock := MovedClock())
    known.observe(claimed())
    known.observe(claimed("sb-2"))
    clock.at_ms += KEPT_MS - 1
    known.observe(ended(at_ms=clock.at_ms))
    clock.at_ms += KEPT_MS - 1
    known.forget()
    assert known.records.keys() == {"sb-1"}


def test_there_is_a_bound_and_the_oldest_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpersisted, "MOST_KEPT", 2)
    known = UnpersistedFacts(MovedClock())
    for number in range(4):
        known.observe(claimed(f"sb-{number}"))
    known.forget()
    assert [*known.records] == ["sb-2", "sb-3"]


def extended(at_ms: int = MovedClock.at_ms, expires_at_ms: int = 9_000_000) -> Sandbox:
    cold = replace(claimed(), pool="", claimed_at_ms=None, expires_at_ms=expires_at_ms)
    return noted(cold, at_ms, "extend")


def test_an_extension_outweighs_the_life_before_it_and_the_longer_one_is_true() -> None:
    known = UnpersistedFacts(MovedClock())
    known.observe(extended())
    before = replace(extended(), expires_at_ms=8_000_000, version=7, timeline=())
    known.observe(noted(before, MovedClock.at_ms, "extend"))
    assert known.outweighs(before)
    assert not known.outweighs(replace(before, expires_at_ms=9_000_000))
    public = replace(before, public_ports=(80,))
    assert known.corrected(public) == replace(public, version=8, expires_at_ms=9_000_000)
    known.observe(ended())
    assert known.records == {"sb-1": ended()}


def test_an_extension_of_long_ago_or_before_it_ran_is_not_kept() -> None:
    known = UnpersistedFacts(MovedClock())
    known.observe(extended(at_ms=1))
    known.observe(replace(extended(), state=State.STARTING))
    assert known.records == {}
