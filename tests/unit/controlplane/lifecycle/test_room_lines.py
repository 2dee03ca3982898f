"""Who goes on next when there is room."""

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from controlplane.capacity import NOTHING
from controlplane.lifecycle.admission.candidates import candidate
from controlplane.lifecycle.waiting.room_lines import MOST_KINDS, RoomLines
from controlplane.lifecycle.waiting.ticket import Ticket
from controlplane.model import Overcommit, SandboxSpec
from controlplane.model.spec import Range

WAITERS = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from([100, 200, 300]), st.booleans()), min_size=1, max_size=12
)


def waiter(number: int, owner: str, cpu: int, *, of_pool: bool) -> Ticket:
    spec = SandboxSpec(image="a", cpu_millicores=Range(request=cpu, limit=1000))
    made = candidate(owner, spec, None, now_ms=0, idle_timeout_ms=0, overcommit=Overcommit())
    return Ticket(replace(made, id=f"sb-{number}", pool="p" if of_pool else ""), NOTHING, number)


@given(WAITERS, st.integers(0, 400))
def test_all_that_go_are_taken_once_and_those_of_pools_last(kinds: list[tuple[str, int, bool]], room: int) -> None:
    holds: Counter[str] = Counter()
    lines = RoomLines(holds.__getitem__)
    every = [waiter(number, owner, cpu, of_pool=pool) for number, (owner, cpu, pool) in enumerate(kinds)]
    for one in every:
        lines.join(one)
    taken: list[Ticket] = []
    while (chosen := lines.take(lambda one: one.sandbox.spec.cpu_millicores.request <= room)) is not None:
        holds[chosen.sandbox.owner] += 1
        taken.append(chosen)
    fitting = [one for one in every if one.sandbox.spec.cpu_millicores.request <= room]
    assert {one.number for one in taken} == {one.number for one in fitting}
    pools = [one.sandbox.unclaimed for one in taken]
    assert pools == sorted(pools)
    assert len(lines) == len(every) - len(taken)
    # Of one owner, those that request the same go in the order in which they came.
    for one in taken:
        alike = [two.number for two in taken if (two.line, two.sandbox.owner) == (one.line, one.sandbox.owner)]
        assert alike == sorted(alike)


@given(WAITERS)
def test_who_leaves_leaves_nothing(kinds: list[tuple[str, int, bool]]) -> None:
    lines = RoomLines(lambda _: 0)
    every = [waiter(number, owner, cpu, of_pool=pool) for number, (owner, cpu, pool) in enumerate(kinds)]
    for one in every:
        lines.join(one)
    for one in every:
        assert lines.hold_back(one)
        lines.leave(one)
        lines.leave(one)
    assert len(lines) == 0
    assert not any(lines.hold_back(one) for one in every)


@given(WAITERS, st.integers(0, 5))
def test_what_owners_wait_for_is_told_oldest_first(kinds: list[tuple[str, int, bool]], most: int) -> None:
    lines = RoomLines(lambda _: 0)
    every = [waiter(number, owner, cpu, of_pool=pool) for number, (owner, cpu, pool) in enumerate(kinds)]
    for one in every:
        lines.join(one)
    assert lines.claimed(most) == [one for one in every if not one.sandbox.unclaimed][:most]


def test_pools_do_not_pass_creates_and_creates_pass_pools() -> None:
    lines = RoomLines(lambda _: 0)
    lines.join(waiter(1, "a", 100, of_pool=True))
    assert not lines.hold_back(waiter(2, "a", 100, of_pool=False))
    lines.join(waiter(3, "a", 200, of_pool=False))
    assert lines.hold_back(waiter(4, "a", 200, of_pool=True))
    assert not lines.hold_back(waiter(5, "a", 300, of_pool=True))


def test_many_kinds_that_do_not_go_block_nobody() -> None:
    lines = RoomLines(lambda owner: int(owner == "b"))
    for number in range(2 * MOST_KINDS):
        lines.join(waiter(number, "a", 500 + number, of_pool=False))
    goes = waiter(1000, "b", 100, of_pool=False)
    lines.join(goes)
    taken, turns = None, 0
    while taken is None and turns < 5:
        taken, turns = lines.take(lambda one: one is goes), turns + 1
    assert (taken, turns) == (goes, 3)
    # The round ends, and the next one begins with those that were asked first.
    asked: list[int] = []

    def asks(one: Ticket) -> bool:
        asked.append(one.number)
        return False

    assert lines.take(asks) is None
    assert not lines.unfinished
    asked.clear()
    assert lines.take(asks) is None
    assert lines.unfinished
    assert asked == list(range(MOST_KINDS))
