"""The judge of the soak: what it lets pass, and every kind of violation, told from logs alone."""

from collections.abc import Sequence

import pytest

from tests.chaos import invariants
from tests.chaos.events import Event
from tests.chaos.invariants import ApiRecord, Seen, Verdict

ASKED = Event(1, "create.asked", op="a", owner="ann", key="k", ttl_s=3600, label="b1")
ANSWERED = Event(2, "create.answered", op="a", owner="ann", key="k", id="sb-1")
EMPTIED = Event(105, "store.emptied")
LIVE = ApiRecord("ann", live=True)


def seen(**told: object) -> Seen:
    """Everything at rest: one sandbox, all agreed, but for what is told."""
    used = {"ann": {"sandboxes": 1}}
    whole: dict[str, object] = {
        "cluster": {"sb-1": "ann"},
        "live": {"sb-1": "ann"},
        "warm": 0,
        "used": used,
        "counted": used,
        "records": {"sb-1": LIVE},
    }
    return Seen(**{**whole, **told})  # type: ignore[arg-type]


def wrong(verdicts: Sequence[Verdict]) -> dict[str, int]:
    return {verdict.name: len(verdict.violations) for verdict in verdicts if verdict.violations}


def test_what_is_well_passes_with_the_number_that_was_tried() -> None:
    run = Event(3, "cluster.ran", id="sb-1", nonce="n")
    told = Event(4, "exec.answered", id="sb-1", nonce="n")
    verdicts = invariants.judge([Event(1.5, "cluster.start", id="sb-1"), ASKED, ANSWERED, run, told], seen())
    assert wrong(verdicts) == {}
    tried = {verdict.name: verdict.tried for verdict in verdicts}
    assert tried == {
        "double claims": 1,
        "orphans": 1,
        "quota drift": 1,
        "lost results": 2,
        "ends that nobody asked for": 0,
        "deaths that nobody noticed": 0,
        "runs twice": 1,
    }


@pytest.mark.parametrize(
    "other",
    [
        Event(3, "create.answered", owner="bob", key="k", id="sb-1"),
        Event(3, "create.answered", owner="ann", key="other", id="sb-1"),
        Event(3, "create.answered", owner="ann", key="k", id="sb-2"),
    ],
)
def test_one_sandbox_is_for_one_create_and_the_other_way_round(other: Event) -> None:
    assert len(invariants.double_claims([ASKED, ANSWERED, other]).violations) == 1


def test_the_same_answer_again_is_no_second_claim() -> None:
    assert invariants.double_claims([ASKED, ANSWERED, ANSWERED]).violations == []


@pytest.mark.parametrize(("deleted_s", "excused"), [(4.0, True), (6.0, False)])
def test_only_what_may_have_ended_long_before_it_is_forgotten_with_an_emptied_store(
    deleted_s: float, excused: bool
) -> None:
    deleted = Event(deleted_s, "delete.asked", owner="ann", id="sb-1")
    again = Event(107, "create.answered", owner="ann", key="k", id="sb-2")
    events = sorted([ASKED, ANSWERED, deleted, EMPTIED, again], key=lambda event: event.at_s)
    assert (not invariants.double_claims(events).violations) is excused
    unknown = seen(records={"sb-1": None, "sb-2": LIVE})
    assert (not invariants.lost_results(events, unknown).violations) is excused


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"live": {}}, "on no record"),
        ({"cluster": {}}, "on record only"),
        ({"cluster": {"sb-1": "bob"}}, "bob's on the cluster"),
        ({"cluster": {"sb-1": "pool:warm"}}, "pool:warm's on the cluster"),
        ({"cluster": {"sb-1": "ann", "sb-2": "pool:warm"}}, "belong to pools"),
        ({"warm": 1}, "belong to pools"),
    ],
)
def test_cluster_and_record_name_the_same(told: dict[str, object], words: str) -> None:
    (violation,) = invariants.orphans(seen(**told), 1).violations
    assert words in violation


def test_what_a_pool_keeps_is_no_orphan() -> None:
    kept = seen(cluster={"sb-1": "ann", "sb-2": "pool:warm"}, warm=1)
    assert invariants.orphans(kept, 2).violations == []


def test_quota_is_held_against_the_list() -> None:
    drifted = seen(counted={"ann": {"sandboxes": 2, "gpu": 1}})
    assert len(invariants.quota_drift(drifted, 1).violations) == 2


def test_what_was_answered_stays_known() -> None:
    assert invariants.lost_results([ASKED, ANSWERED], seen(records={})).violations
    assert invariants.lost_results([Event(3, "exec.answered", id="sb-1", nonce="n")], seen()).violations
    elsewhere = Event(2.5, "cluster.ran", id="sb-2", nonce="n")
    assert invariants.lost_results([elsewhere, Event(3, "exec.answered", id="sb-1", nonce="n")], seen()).violations
    assert invariants.lost_results([Event(3, "delete.answered", id="sb-1")], seen()).violations
    not_found = Event(3, "exec.failed", id="sb-1", code="sandbox_not_found")
    assert invariants.lost_results([ASKED, ANSWERED, not_found], seen()).violations


@pytest.mark.parametrize(
    ("asked", "end", "fine"),
    [
        (Event(3, "delete.asked", owner="ann", id="sb-1"), ApiRecord("ann", False, "deleted", "ann"), True),
        (Event(3, "delete.asked", owner="ann", key="k"), ApiRecord("ann", False, "deleted", "ann"), True),
        (Event(3, "delete.asked", owner="ann", label="b1"), ApiRecord("ann", False, "deleted", "ann"), True),
        (Event(3, "create.cancelled", owner="ann", key="k"), ApiRecord("ann", False, "create_abandoned", "ann"), True),
        (Event(3, "blow.client"), ApiRecord("ann", False, "create_abandoned", "control plane"), False),
        (Event(3, "delete.asked", owner="bob", key="k"), ApiRecord("ann", False, "deleted", "ann"), False),
        (Event(3, "delete.asked", owner="ann", label="b2"), ApiRecord("ann", False, "deleted", "ann"), False),
        (Event(3, "delete.asked", owner="ann", id="sb-1"), ApiRecord("ann", False, "sandbox_lost", "prober"), False),
        (Event(3, "blow.plane"), ApiRecord("ann", False, "ttl_expired", "platform"), False),
        (Event(3700, "blow.plane"), ApiRecord("ann", False, "ttl_expired", "platform"), True),
        (Event(3, "blow.plane"), ApiRecord("ann", False, "lease_expired", "lease x"), False),
    ],
)
def test_an_end_has_a_reason(asked: Event, end: ApiRecord, fine: bool) -> None:
    verdict = invariants.unasked_ends([ASKED, ANSWERED, asked], seen(records={"sb-1": end}))
    assert (verdict.tried, not verdict.violations) == (1, fine)


def test_a_call_runs_once() -> None:
    runs = [Event(1, "cluster.ran", id="sb-1", nonce="n"), Event(2, "cluster.ran", id="sb-2", nonce="n")]
    assert invariants.runs_twice(runs).violations == ["exec n ran in sb-1, sb-2"]
    assert invariants.runs_twice([*runs, *runs]).tried == 1


DIED = Event(3, "cluster.died", id="sb-1", code="node_lost")


@pytest.mark.parametrize(
    ("cause", "violations"), [("node_lost", 0), ("sandbox_lost", 0), ("deleted", 1), ("internal", 1)]
)
def test_what_died_on_the_cluster_ends_as_what_it_died_of(cause: str, violations: int) -> None:
    told = seen(records={"sb-1": ApiRecord("ann", live=False, cause=cause)})
    assert len(invariants.unasked_ends([ASKED, ANSWERED, DIED], told).violations) == violations


def test_a_node_may_take_what_had_lost_its_sidecar() -> None:
    first = Event(2.5, "cluster.died", id="sb-1", code="sandbox_lost")
    told = seen(records={"sb-1": ApiRecord("ann", live=False, cause="node_lost")})
    assert invariants.unasked_ends([ASKED, ANSWERED, first, DIED], told).violations == []


def test_what_died_on_the_cluster_does_not_live_on_record() -> None:
    verdict = invariants.unnoticed_deaths([ASKED, ANSWERED, DIED], seen())
    assert (verdict.tried, len(verdict.violations)) == (1, 1)
    assert invariants.unnoticed_deaths([ASKED, ANSWERED], seen()).violations == []


@pytest.mark.parametrize(("at_s", "violations"), [(4, 0), (2.5, 1)])
def test_a_key_has_another_sandbox_only_after_the_first_one_died(at_s: float, violations: int) -> None:
    other = Event(at_s, "create.answered", owner="ann", key="k", id="sb-2")
    assert len(invariants.double_claims([ASKED, ANSWERED, DIED, other]).violations) == violations
