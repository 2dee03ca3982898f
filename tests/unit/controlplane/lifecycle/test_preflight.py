"""The arithmetic of a run before it begins."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from controlplane.errors import Problem
from controlplane.lifecycle.preflight.arithmetic import Facts, forecast
from controlplane.model import Limits, Quota, Usage
from controlplane.scaling import NodePool, Prospect

EACH = Usage(1, 500, 1 << 30, 0, 1)
FREE = Facts(
    owner="alice",
    count=960,
    each=EACH,
    limits=Limits(),
    used=Usage(),
    in_all=0,
    warm=0,
    room=None,
    room_when_empty=None,
    starts_at_once=64,
    start_ms=1_000,
)
FACTS = st.builds(
    Facts,
    owner=st.just("alice"),
    count=st.integers(1, 2_000),
    each=st.builds(Usage, st.just(1), st.integers(0, 4_000), st.integers(0, 1 << 34), st.integers(0, 4), st.just(1)),
    limits=st.builds(
        Limits,
        st.integers(0, 2_000),
        st.builds(Quota, st.integers(0, 900), st.integers(0, 10**6), st.integers(0, 1 << 40), st.integers(0, 64)),
    ),
    used=st.builds(Usage, st.integers(0, 900), st.integers(0, 10**6), st.integers(0, 1 << 40), st.integers(0, 64)),
    in_all=st.integers(0, 2_000),
    warm=st.integers(0, 100),
    room=st.none() | st.integers(0, 2_000),
    room_when_empty=st.none() | st.integers(0, 2_000),
    starts_at_once=st.integers(0, 100),
    start_ms=st.none() | st.integers(0, 10_000),
    giving=st.integers(0, 100),
)


def test_without_limits_everything_fits_and_takes_its_waves() -> None:
    found = forecast(FREE)
    assert (found.fits, found.may_have, found.most, found.blockers) == (True, 960, 960, [])
    assert found.estimate_ms == 15_000
    assert forecast(replace(FREE, warm=960)).estimate_ms == 0
    assert forecast(replace(FREE, start_ms=None)).estimate_ms is None
    slow = Limits(quota=Quota(starting=1))
    assert forecast(replace(FREE, limits=slow)).estimate_ms == 960_000


def test_a_quota_says_what_is_needed_what_may_be_had_and_the_knob() -> None:
    found = forecast(replace(FREE, limits=Limits(quota=Quota(sandboxes=512)), used=Usage(sandboxes=12)))
    assert (found.fits, found.may_have, found.most) == (False, 500, 512)
    (blocker,) = found.blockers
    assert (blocker.code, blocker.for_good) == ("quota_exceeded", True)
    assert blocker.detail == "this needs 960 sandboxes; alice may have 512 sandboxes and uses 12 sandboxes"
    assert blocker.hint == "An operator raises it: rollbox quota set alice --sandboxes N"


def test_what_others_of_the_owner_use_is_only_a_wait() -> None:
    found = forecast(replace(FREE, count=500, limits=Limits(quota=Quota(sandboxes=512)), used=Usage(sandboxes=100)))
    assert (found.fits, found.may_have, found.most) == (False, 412, 500)
    assert [one.for_good for one in found.blockers] == [False]


def test_the_nodes_and_the_installation_are_capacity() -> None:
    told = "node a has 0.3 cpu left"
    room = replace(FREE, room=600, room_when_empty=700, room_left=told)
    found = forecast(replace(room, limits=Limits(total=900), in_all=100, warm=50))
    assert [(one.code, one.for_good) for one in found.blockers] == [("capacity_unavailable", True)] * 2
    assert (found.may_have, found.most) == (650, 700)
    assert found.blockers[1].detail == ("650 of 960 fit now, 700 when no other sandbox runs: node a has 0.3 cpu left")


def test_nodes_that_may_come_are_told_and_make_it_a_matter_of_time() -> None:
    full = replace(FREE, count=100, room=0, room_when_empty=0, room_left="there is no node")
    assert forecast(full).blockers[0].for_good
    coming = Prospect("general", 4, 120, 600)
    found = forecast(replace(full, may_come=[coming]))
    assert (found.fits, found.may_have, found.most, found.may_come) == (False, 0, 100, [coming])
    (blocker,) = found.blockers
    assert (blocker.code, blocker.for_good) == ("capacity_unavailable", False)
    assert blocker.detail == (
        "0 of 100 fit now, 0 when no other sandbox runs: there is no node; node pool general may bring 4 nodes with "
        "room for 120, within 600 s each"
    )
    few = forecast(replace(full, may_come=[replace(coming, sandboxes=60)]))
    assert (few.most, few.blockers[0].for_good) == (60, True)


def test_pools_that_bring_nothing_say_why() -> None:
    full = replace(FREE, count=100, room=0, room_when_empty=0, room_left="there is no node")
    pool = NodePool("general", "grpc", "general", (4_000, 1 << 33, 1 << 40, 0, 110), 0, 10)
    request = (1_000, 1 << 30, 0, 0, 1)
    said = {
        0: ("node pool general: has its maximum of 10 nodes", True),
        None: ("node pool general: its scaler has told nothing yet", False),
        30: ("node pool general may bring 30 nodes with room for 120, but it pauses for another 9 s", False),
    }
    for nodes, (words, for_good) in said.items():
        one = Prospect.of(pool, request, nodes, "it pauses for another 9 s" if nodes else "")
        (blocker,) = forecast(replace(full, may_come=[one])).blockers
        assert (blocker.detail.split("; ")[1], blocker.for_good) == (words, for_good)


def test_unclaimed_ones_of_other_templates_give_way() -> None:
    full = replace(FREE, count=8, limits=Limits(total=10), in_all=10)
    assert [forecast(replace(full, warm=warm, giving=giving)).may_have for warm, giving in ((0, 0), (1, 5))] == [0, 6]


def test_what_can_never_start_has_nothing() -> None:
    refused = [Problem("image_not_found", "a: manifest unknown"), Problem("unsupported", "gpu 1")]
    found = forecast(replace(FREE, refused=refused))
    assert (found.fits, found.may_have, found.most, found.estimate_ms) == (False, 0, 0, None)
    assert [(one.code, one.for_good) for one in found.blockers] == [("image_not_found", True), ("unsupported", True)]


@given(FACTS)
def test_what_may_be_had_keeps_every_limit(facts: Facts) -> None:
    found = forecast(facts)
    assert 0 <= found.may_have <= facts.count
    assert found.fits == (found.may_have == facts.count) == (not found.blockers)
    quota, more = facts.limits.quota, Usage()
    for _ in range(found.may_have):
        more += facts.each
    assert found.may_have == 0 or facts.used.excess(more, replace(quota, starting=0)) is None
    if facts.limits.total and facts.in_all <= facts.limits.total:
        assert facts.in_all + found.may_have - min(facts.warm + facts.giving, facts.in_all) <= facts.limits.total


@given(FACTS)
def test_one_more_than_may_be_had_would_pass_a_limit(facts: Facts) -> None:
    found = forecast(facts)
    more = forecast(replace(facts, count=found.may_have + 1))
    assert found.fits or not more.fits


@given(FACTS)
def test_a_wait_helps_exactly_when_an_empty_place_would_do(facts: Facts) -> None:
    found = forecast(facts)
    assert any(one.for_good for one in found.blockers) == (found.most < facts.count)


def test_warm_ones_beyond_a_lowered_total_may_all_be_had() -> None:
    facts = replace(FREE, count=2, limits=Limits(total=1), in_all=2, warm=2)
    found = forecast(facts)
    assert (found.fits, found.may_have, found.most, found.blockers) == (True, 2, 2, [])
