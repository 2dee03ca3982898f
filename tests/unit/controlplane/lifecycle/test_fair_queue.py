"""Whose turn it is: nobody starves, first come first served within an owner, and the few pass the herd."""

from collections import Counter
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.lifecycle.waiting.fair_queue import OLDEST_EVERY, FairQueue
from controlplane.lifecycle.waiting.gates.quota import share
from controlplane.lifecycle.waiting.pace import TURNS, Pace
from controlplane.model import Limits, Quota, Usage

OWNERS = ("alice", "bob", "carol")
# An owner joins, or (None) somebody has a turn.
STEPS = st.lists(st.sampled_from((*OWNERS, None, None)), max_size=200)


def take(queue: FairQueue[int], held: Counter[str], among: tuple[str, ...] = OWNERS) -> tuple[str, int] | None:
    """One turn: the owner holds one more."""
    owner = queue.choose(lambda one: float(held[one]), among)
    if owner is None:
        return None
    ticket = queue.first(owner)
    queue.served(owner, ticket)
    held[owner] += 1
    return owner, ticket


@given(STEPS)
def test_within_an_owner_first_come_is_first_served(steps: list[str | None]) -> None:
    queue, held, tickets = FairQueue[int](), Counter[str](), count(1)
    served: dict[str, list[int]] = {owner: [] for owner in OWNERS}
    for step in steps:
        if step is not None:
            ticket = next(tickets)
            queue.join(step, ticket, ticket)
        elif (turn := take(queue, held)) is not None:
            served[turn[0]].append(turn[1])
    assert all(those == sorted(those) for those in served.values())


@given(st.lists(st.sampled_from(("bob", "carol")), min_size=400, max_size=400), st.integers(0, 30))
def test_nobody_starves_whoever_comes_and_however_much_he_holds(newcomers: list[str], before_him: int) -> None:
    queue, held, tickets = FairQueue[int](), Counter({"alice": 1_000_000}), count(1)
    for _ in range(before_him):
        queue.join("bob", (ticket := next(tickets)), ticket)
    queue.join("alice", (his := next(tickets)), his)
    for turn, newcomer in enumerate(newcomers, start=1):
        queue.join(newcomer, (ticket := next(tickets)), ticket)
        if take(queue, held) == ("alice", his):
            # The fourth turns serve those before him, then him.
            assert turn <= OLDEST_EVERY * (before_him + 1)
            return
    pytest.fail("he never had a turn")


def test_a_thousand_of_one_do_not_stand_before_the_five_of_another() -> None:
    queue, held, tickets = FairQueue[int](), Counter({"alice": 100}), count(1)
    for _ in range(1_000):
        queue.join("alice", (ticket := next(tickets)), ticket)
    for _ in range(5):
        queue.join("bob", (ticket := next(tickets)), ticket)
    turns = [take(queue, held) for _ in range(8)]
    assert sum(turn is not None and turn[0] == "bob" for turn in turns) == 5


@given(STEPS, st.sets(st.sampled_from(OWNERS)))
def test_a_turn_goes_only_to_who_can_use_it(steps: list[str | None], ready: set[str]) -> None:
    queue, tickets = FairQueue[int](), count(1)
    for step in filter(None, steps):
        queue.join(step, (ticket := next(tickets)), ticket)
    chosen = queue.choose(lambda _: 0.0, ready)
    assert chosen in ready & set(queue.owners()) if ready & set(queue.owners()) else chosen is None


@given(st.lists(st.integers(0, 40), max_size=60))
def test_positions_and_counts_are_right_whoever_leaves(leavers: list[int]) -> None:
    queue = FairQueue[int]()
    for ticket in range(40):
        queue.join("alice", ticket, ticket)
    left = list(range(40))
    for ticket in leavers:
        assert queue.leave("alice", ticket) == (ticket in left)
        left = [one for one in left if one != ticket]
    assert [ticket for ticket, _ in queue.of("alice")] == left
    assert (len(queue), queue.waiting("alice")) == (len(left), len(left))
    assert [queue.position("alice", ticket) for ticket in left] == list(range(1, len(left) + 1))
    assert list(queue.owners()) == (["alice"] if left else [])


def test_who_comes_back_with_his_ticket_has_his_place() -> None:
    queue = FairQueue[str]()
    queue.join("alice", 1, "first")
    queue.join("alice", 2, "second")
    queue.leave("alice", 1)
    queue.join("alice", 1, "first again")
    assert queue.first("alice") == "first again"


def test_a_pace_is_told_from_the_last_turns_and_slows_down_when_nothing_moves() -> None:
    pace = Pace()
    assert pace.wait_ms(1, 0) is None
    for turn in range(100):
        pace.turn(turn * 10)
    assert pace.wait_ms(1, 990) == 150 // TURNS
    assert pace.wait_ms(TURNS, 990) == 150
    assert (pace.wait_ms(1, 990 + 16_000) or 0) >= 1_000


@given(st.integers(0, 50), st.integers(0, 50), st.integers(1, 50), st.integers(1, 100))
def test_a_share_is_the_largest_part_of_any_limit(sandboxes: int, cores: int, limit: int, total: int) -> None:
    used = Usage(sandboxes, cores * 1000, starting=sandboxes)
    assert share(used, Limits()) == 0
    assert share(used, Limits(total, Quota(starting=1))) == sandboxes / total
    both = Limits(total, Quota(sandboxes=limit, cpu_millicores=limit * 1000))
    assert share(used, both) == max(sandboxes / total, sandboxes / limit, cores / limit)
