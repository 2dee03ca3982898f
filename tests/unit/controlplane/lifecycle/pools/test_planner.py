"""The planner and all it plans from, over random histories: starts, failures, claims, old views, new declarations."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from controlplane.lifecycle.pools.declared import Declared
from controlplane.lifecycle.pools.pace import MINUTE_MS
from controlplane.lifecycle.pools.planner import Member, plan, share
from controlplane.lifecycle.pools.pool import Pool
from controlplane.model import EndCause, Sandbox, State, pool_owner
from controlplane.model.pool import PoolSpec
from controlplane.model.spec import Template

IMAGES = ("a:1", "a:2", "a:3")
DAY_MS = 86_400_000
MOST_LAG_MS = 29_000
SIZES = st.integers(0, 6)


def spec(image: str, least: int, most: int, *, rate: int = 600, surge: int = 2, drain: bool = False) -> PoolSpec:
    return PoolSpec(
        template=Template(image=image),
        min_warm=least,
        max_warm=most,
        starts_per_minute=rate,
        surge=surge,
        drain=drain,
    )


class Histories(RuleBasedStateMachine):
    """The truth is ``alive``; the pool hears of it late, twice or only by old views."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 1_800_000_000_000
        self.alive: dict[str, Sandbox] = {}
        self.views: list[tuple[int, dict[str, Sandbox]]] = []
        self.starts: list[int] = []
        self.count = 0

    @initialize(
        least=SIZES, more=SIZES, surge=st.integers(1, 3), rate=st.sampled_from((3, 600)), image=st.sampled_from(IMAGES)
    )
    def declared(self, least: int, more: int, surge: int, rate: int, image: str) -> None:
        self.spec = spec(image, least, least + more, surge=surge, rate=rate)
        self.pool = Pool(Declared("p", "0", self.spec))

    @rule(least=SIZES, more=SIZES, image=st.sampled_from(IMAGES), drain=st.booleans())
    def declare_anew(self, least: int, more: int, image: str, drain: bool) -> None:
        self.count += 1
        before = self.spec
        self.spec = spec(
            image, least, least + more, surge=before.surge, rate=before.starts_per_minute, drain=drain and least > 2
        )
        self.pool.declare(Declared("p", str(self.count), self.spec))

    @rule(ms=st.integers(0, 20_000))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms

    @rule()
    def next_step(self) -> None:
        self.act()

    @rule(at=st.integers(0, 100), heard=st.booleans())
    def one_gets_ready(self, at: int, heard: bool) -> None:
        starting = [one for one in self.alive.values() if one.state is State.STARTING]
        if starting:
            one = starting[at % len(starting)]
            warm = replace(one, state=State.WARM, ready_at_ms=self.now_ms, version=one.version + 1)
            self.change(warm, heard=heard)

    @rule(at=st.integers(0, 100), heard=st.booleans(), twice=st.booleans())
    def one_is_claimed(self, at: int, heard: bool, twice: bool) -> None:
        ready = [one for one in self.alive.values() if one.state is State.WARM]
        if ready:
            one = ready[at % len(ready)]
            taken = replace(one, state=State.RUNNING, owner="a", claimed_at_ms=self.now_ms, version=one.version + 1)
            self.change(taken, heard=heard)
            if heard and twice:
                self.pool.observe(taken, self.now_ms)

    @rule(at=st.integers(0, 100), heard=st.booleans())
    def one_dies(self, at: int, heard: bool) -> None:
        if self.alive:
            one = [*self.alive.values()][at % len(self.alive)]
            end = EndCause("image_not_found", "there is none", self.now_ms, "engine")
            self.change(replace(one, state=State.ENDING, end=end, version=one.version + 1), heard=heard)

    @rule()
    def somebody_finds_none(self) -> None:
        self.count += 1
        self.pool.missed(f"sb-cold-{self.count}", self.now_ms)

    @precondition(lambda self: self.views)
    @rule(back=st.integers(0, 5))
    def an_old_view_comes(self, back: int) -> None:
        fresh = [view for at_ms, view in self.views if self.now_ms - at_ms <= MOST_LAG_MS]
        if fresh:
            self.pool.see(fresh[-1 - back % len(fresh)].values(), self.now_ms)

    @rule()
    def a_view_is_taken(self) -> None:
        self.views = [*self.views[-10:], (self.now_ms, dict(self.alive))]

    @invariant()
    def no_more_than_the_rate_in_any_minute(self) -> None:
        for at_ms in self.starts:
            within = [one for one in self.starts if at_ms <= one < at_ms + MINUTE_MS]
            assert len(within) <= self.spec.starts_per_minute

    def teardown(self) -> None:
        """When nothing happens any more but good starts, the pool comes to what is wanted, and stays there."""
        if not hasattr(self, "pool"):
            return
        for _ in range(400):
            self.now_ms += 1_000
            for one in [*self.alive.values()]:
                if one.state is State.STARTING:
                    warm = replace(one, state=State.WARM, ready_at_ms=self.now_ms, version=one.version + 1)
                    self.change(warm, heard=True)
            self.pool.see(self.alive.values(), self.now_ms)
            self.act()
        self.pool.see(self.alive.values(), self.now_ms)
        step = self.pool.next_step(self.now_ms)
        assert not step.plan.stop
        assert not step.plan.start
        assert len(self.alive) == step.size.wanted, self.pool.status(self.now_ms)
        template = self.spec.spec().template_hash()
        assert all(one.spec.template_hash() == template for one in self.alive.values())

    def act(self) -> None:
        step = self.pool.next_step(self.now_ms)
        # By what it knows: of a death that nobody has told it, it learns from the views.
        ready = {one.id for one in self.pool._members.all() if one.ready}
        assert len(ready.difference(step.plan.stop)) >= min(len(ready), step.size.wanted)
        for sandbox_id in step.plan.stop:
            self.alive.pop(sandbox_id, None)
            self.pool.stopped(sandbox_id, self.now_ms)
        template = self.spec.spec()
        for _ in range(step.plan.start):
            self.count += 1
            owner = pool_owner("p")
            one = Sandbox(f"sb-{self.count}", owner, template, self.now_ms, self.now_ms + DAY_MS, "f", pool="p")
            one = replace(one, state=State.STARTING)
            self.alive[one.id] = one
            self.starts.append(self.now_ms)
            self.pool.started(one, self.now_ms)
        if step.plan.start:
            left = [one for one in self.alive.values() if one.spec.template_hash() != template.template_hash()]
            assert len(self.alive) <= self.spec.max_warm + (self.spec.surge if left else 0)

    def change(self, after: Sandbox, *, heard: bool) -> None:
        del self.alive[after.id]
        if after.unclaimed and after.end is None:
            self.alive[after.id] = after
        if heard:
            self.pool.observe(after, self.now_ms)


def test_whatever_happens_and_is_heard_the_pool_keeps_its_bounds_and_comes_to_what_is_wanted() -> None:
    run_state_machine_as_test(Histories)


def members(template: str, ready: int, starting: int) -> list[Member]:
    return [
        *(Member(f"{template}-r{at}", template, 1, DAY_MS, at + 1) for at in range(ready)),
        *(Member(f"{template}-s{at}", template, 1, DAY_MS) for at in range(starting)),
    ]


def test_a_roll_starts_the_surge_and_keeps_the_old_until_others_are_ready() -> None:
    first = plan([], members("old", 4, 0), wanted=4, surge=2, allowed=100)
    assert (first.start, first.stop, first.missing) == (2, (), 4)
    second = plan(members("new", 1, 1), members("old", 4, 0), wanted=4, surge=2, allowed=100)
    assert second.stop == ("old-r0",)
    assert second.start == 1


def test_a_roll_never_waits_for_old_ones_that_are_not_ready() -> None:
    assert set(plan([], members("old", 0, 2), wanted=2, surge=1, allowed=100).stop) == {"old-s0", "old-s1"}


def test_too_many_lose_the_unready_first_and_then_the_youngest() -> None:
    assert plan(members("new", 3, 1), [], wanted=2, surge=1, allowed=100).stop == ("new-s0", "new-r2")


def test_what_is_not_allowed_is_told_as_missing() -> None:
    held_up = plan([], [], wanted=5, surge=1, allowed=2)
    assert (held_up.start, held_up.missing) == (2, 5)


@given(st.dictionaries(st.text("ab", min_size=1, max_size=3), st.integers(0, 9), max_size=4), st.integers(0, 30))
def test_starts_are_dealt_out_evenly_and_no_more_than_there_are(wanting: dict[str, int], budget: int) -> None:
    dealt = share(wanting, budget)
    assert sum(dealt.values()) == min(budget, sum(wanting.values()))
    assert all(dealt[name] <= count for name, count in wanting.items())
    unfed = [dealt[name] for name, count in wanting.items() if dealt[name] < count]
    assert not unfed or max(dealt.values()) - min(unfed) <= 1
