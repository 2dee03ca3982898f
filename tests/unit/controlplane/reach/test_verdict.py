"""What follows from what a sandbox and an unrestricted pod saw."""

from itertools import product
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.reach import verdict
from controlplane.reach.attempts import Ending, Seen
from controlplane.reach.verdict import Verdict, concluded, judged, lines
from controlplane.reach.ways import OWN_NODE, READY, Way, dumped, everywhere, loaded

API = Way("API server", "10.96.0.1", 443)
INTERNET = Way("internet", "1.1.1.1", 443)
READINESS = Way(READY, "10.96.0.7", 8082, must_work=True)
ENDINGS: tuple[Ending, ...] = get_args(Ending)

endings = st.sampled_from(ENDINGS)


def one(way: Way, inside: Ending | None, outside: Ending | None) -> Verdict:
    (only,) = judged(
        [way],
        {} if inside is None else {way.name: Seen(inside)},
        {} if outside is None else {way.name: Seen(outside)},
    )
    return only


@pytest.mark.parametrize(
    ("inside", "outside", "state"),
    [
        # What gets through is broken, whatever others see.
        ("open", "open", "broken"),
        ("open", "refused", "broken"),
        ("open", "closed", "broken"),
        ("open", None, "broken"),
        # An unrestricted pod gets an answer, and the sandbox none: by silence, or by a plugin that refuses.
        ("closed", "open", "kept"),
        ("refused", "open", "kept"),
        ("closed", "refused", "kept"),
        # Silence for everybody proves nothing; neither does a port where nobody listens.
        ("closed", "closed", "unknown"),
        ("refused", "closed", "unknown"),
        ("refused", "refused", "unknown"),
        ("closed", None, "unknown"),
        ("refused", None, "unknown"),
        (None, "open", "unknown"),
    ],
)
def test_what_must_not_work(inside: Ending | None, outside: Ending | None, state: str) -> None:
    judgement = one(API, inside, outside)
    assert judgement.state == state
    assert "the API server (10.96.0.1:443)" in judgement.sentence


@pytest.mark.parametrize("outside", [*ENDINGS, None])
def test_what_must_work(outside: Ending | None) -> None:
    assert one(READINESS, "open", outside).state == "kept"
    for inside in ("refused", "closed", None):
        assert one(READINESS, inside, outside).state == "broken"
    assert ("an unrestricted pod reaches it" in one(READINESS, "closed", outside).sentence) == (outside == "open")


def test_a_policy_that_comes_late_is_told() -> None:
    (late,) = judged([API], {API.name: Seen("closed", 2.5)}, {API.name: Seen("open")})
    assert late.state == "kept"
    assert "2.5 s late" in late.sentence
    (ready,) = judged([READINESS], {READY: Seen("open", 1.0)}, {})
    assert ready.sentence.endswith("1 s after it began to try")


@pytest.mark.parametrize(
    ("api", "internet", "ready", "sentence"),
    [
        (("closed", "open"), ("closed", "closed"), ("open", "open"), verdict.ENFORCED),
        (("open", "open"), ("open", "open"), ("open", "open"), verdict.IGNORED),
        (("open", "open"), ("closed", "closed"), ("open", "open"), verdict.IGNORED),
        (("closed", "open"), ("open", "open"), ("open", "open"), verdict.IN_PART),
        (("closed", "open"), ("closed", "open"), ("closed", "open"), verdict.SHUT),
        (("closed", "closed"), ("closed", "closed"), ("open", "open"), verdict.UNKNOWN),
        # No risk that could be accepted: it does not work.
        (("open", "open"), ("closed", "open"), ("closed", "open"), verdict.SHUT),
    ],
)
def test_the_conclusion_says_what_is_wrong_and_what_to_do(
    api: tuple[Ending, Ending], internet: tuple[Ending, Ending], ready: tuple[Ending, Ending], sentence: str
) -> None:
    seen = [one(way, *both) for way, both in ((API, api), (INTERNET, internet), (READINESS, ready))]
    conclusion = concluded(seen)
    assert conclusion.sentence == sentence
    assert conclusion.isolated == (sentence == verdict.ENFORCED) == (not conclusion.fix)
    assert conclusion.works == (sentence != verdict.SHUT)
    assert [line.split(":")[0] for line in lines(seen)] == [
        {"kept": "ok", "broken": "BROKEN", "unknown": "unknown"}[each.state] for each in seen
    ]


@given(inside=st.lists(endings, min_size=3, max_size=3), outside=st.lists(endings, min_size=3, max_size=3))
def test_isolation_is_never_concluded_without_proof(inside: list[Ending], outside: list[Ending]) -> None:
    pairs = list(zip(inside, outside, strict=True))
    conclusion = concluded([one(way, *both) for way, both in zip((API, INTERNET, READINESS), pairs, strict=True)])
    proven = any(mine != "open" and other == "open" for mine, other in pairs[:2]) or ("closed", "refused") in pairs[:2]
    assert conclusion.isolated == (proven and "open" not in inside[:2] and inside[2] == "open")


def test_nothing_tried_is_nothing_known() -> None:
    assert concluded([]).sentence == verdict.UNKNOWN
    assert concluded(judged([API, READINESS], {}, {})).sentence == verdict.SHUT


def test_every_sentence_is_a_sentence() -> None:
    for way, inside, outside in product((API, READINESS), (*ENDINGS, None), (*ENDINGS, None)):
        assert one(way, inside, outside).sentence.count(way.address) == 1


def test_ways_survive_the_command_line() -> None:
    ways = [*everywhere(name_server="10.96.0.10"), READINESS]
    assert loaded(dumped(ways)) == ways
    assert len({way.name for way in ways}) == len(ways) == 5
    assert not [way for way in everywhere(name_server="") if way.kind == "dns"]
    assert Way("node", "fd00::1", 10250).address == "[fd00::1]:10250"


def test_the_node_is_filled_in_where_it_is_meant() -> None:
    kubelet = next(way for way in everywhere(name_server="") if way.host == OWN_NODE)
    assert kubelet.of_node("10.0.0.1").address == "10.0.0.1:10250"
    assert API.of_node("10.0.0.1") == API


def test_an_unrestricted_pod_does_not_wait_for_a_policy() -> None:
    assert Way("API server", "10.96.0.1", 443, retry_for_s=8).from_outside() == Way(
        "API server", "10.96.0.1", 443, must_work=True
    )
