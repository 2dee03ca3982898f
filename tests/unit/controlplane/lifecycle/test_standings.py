"""Where each start stands that waits for room, whatever came and went."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from controlplane.lifecycle.admission.candidates import candidate
from controlplane.lifecycle.waiting.standings import LEFT_MS, SLACK_MS, Standings
from controlplane.model import Overcommit, Sandbox, SandboxSpec, State
from controlplane.model.spec import Range

KINDS = st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from([100, 200])), min_size=1, max_size=10)


def start(number: int, owner: str = "a", cpu: int = 100, key: str | None = None, **selector: str) -> Sandbox:
    amounts = Range(request=cpu, limit=1000)
    spec = SandboxSpec(image="a", cpu_millicores=amounts, node_selector=selector, start_timeout_ms=30_000)
    made = candidate(owner, spec, key, now_ms=number, idle_timeout_ms=0, overcommit=Overcommit())
    return replace(made, id=f"sb-{number}", state=State.QUEUED)


@given(KINDS, st.sets(st.integers(0, 9)))
def test_the_numbers_of_a_line_are_all_from_one_to_its_length(kinds: list[tuple[str, int]], gone: set[int]) -> None:
    standings, every = Standings(), [start(number, owner, cpu) for number, (owner, cpu) in enumerate(kinds)]
    for one in reversed(every):
        standings.add(one)
        standings.add(one)
    for number in gone & {*range(len(every))}:
        standings.drop(every[number].id)
    left = [one for number, one in enumerate(every) if number not in gone]
    for kind in set(kinds):
        line = [one for one in left if (one.owner, one.spec.cpu_millicores.request) == kind]
        told = [standings.number(one, 50) for one in line]
        assert told == [(position, len(line)) for position in range(1, len(line) + 1)]
    assert {one.id for one in standings.all()} == {one.id for one in left}


@given(KINDS)
def test_of_a_herd_that_is_refused_each_one_keeps_its_number(kinds: list[tuple[str, int]]) -> None:
    standings, every = Standings(), [start(number, owner, cpu) for number, (owner, cpu) in enumerate(kinds)]
    for one in every:
        standings.add(one)
    before = [standings.number(one, 50) for one in every]
    told = []
    for one in every:
        told.append(standings.number(one, 100, refused=True))
        standings.refuse(one, 100)
    assert told == before
    later = start(1_000, *kinds[0])
    standings.add(later)
    assert standings.number(later, 100) == (1, 1)
    assert standings.number(later, 100 + LEFT_MS, refused=True) == (1, 1)


def test_a_create_that_comes_again_with_its_key_is_counted_once() -> None:
    standings = Standings()
    first, again = start(1, key="k"), start(2, key="k")
    standings.add(first)
    standings.refuse(first, 10)
    standings.add(again)
    assert standings.number(again, 10, refused=True) == (1, 1)


def test_what_nobody_tells_of_any_more_is_forgotten() -> None:
    standings, one = Standings(), start(1)
    standings.add(one)
    standings.tidy(one.start_by_ms + SLACK_MS - 1)
    assert one.id in standings
    standings.tidy(one.start_by_ms + SLACK_MS)
    assert one.id not in standings


def test_pools_stand_back_on_the_nodes_that_creates_may_come_to() -> None:
    standings = Standings()
    standings.add(replace(start(1, owner="pool:p"), pool="p"))
    assert not standings.wanted({})
    standings.add(start(2, gpu="a100", zone="x"))
    assert standings.wanted({})
    assert standings.wanted({"zone": "x"})
    assert not standings.wanted({"gpu": "h100"})
    standings.drop("sb-2")
    assert not standings.wanted({})


def test_what_should_long_be_over_is_forgotten_whatever_was_added_before_it() -> None:
    standings, patient, short = Standings(), start(1), start(2)
    standings.add(replace(patient, spec=patient.spec.model_copy(update={"start_timeout_ms": 3_600_000})))
    standings.add(short)
    standings.tidy(short.start_by_ms + SLACK_MS - 1)
    assert len(standings.all()) == 2
    standings.tidy(short.start_by_ms + SLACK_MS)
    assert [one.id for one in standings.all()] == [patient.id]
