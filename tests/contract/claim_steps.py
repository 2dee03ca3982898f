"""What replicas may do to warm sandboxes in any order, and what must hold whatever they do."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from hypothesis import strategies as st

from controlplane.model import EndCause, Limits, Quota, Sandbox, SandboxSpec, State, Usage, pool_owner
from controlplane.model.states import Change, Event, apply
from controlplane.store import Admitted, Claimed, Store

Step = tuple[str, int, int]
OWNERS: Final = ("alice", "bob")
QUOTA: Final = Limits(quota=Quota(sandboxes=3))
END: Final = EndCause("deleted", "d", 1, "alice")
# "stale" acts on a record that was seen once and never looked at again, as a replica does that was overtaken.
WHATS: Final = (
    "start",
    "start",
    "warm",
    "warm",
    "step",
    "step",
    "claim",
    "claim",
    "claim",
    "end",
    "retire",
    "stale",
    "withdraw",
    "give up",
)
STEPS: Final = st.lists(
    st.tuples(st.sampled_from(WHATS), st.integers(0, 7), st.integers(0, 3)), min_size=10, max_size=60
)
_NEXT: Final = {
    State.REQUESTED: Event.QUEUE,
    State.QUEUED: Event.START,
    State.STARTING: Event.READY,
    State.ENDING: Event.CONFIRM,
}


@dataclass
class Player:
    """One replica: does a step, with what it knew before where the step says so.

    Attributes:
        given: ids of warm sandboxes by who got them, of all players together.
    """

    name: str
    store: Store
    given: list[str]
    ids: list[str]
    seen: dict[str, Sandbox] = field(default_factory=dict)
    number: int = 0

    async def perform(self, step: Step) -> None:
        """One thing that a replica may do; whatever comes of it is fine."""
        what, which, other = step
        self.number += 1
        if what == "start":
            await self._start("p" if other else "")
        elif what == "warm":
            new = await self._start("p")
            for _ in range(3):
                await self._change("step", new)
        elif what == "claim":
            await self._claim(OWNERS[which % 2], f"k{other}" if which < 4 else None)
        elif what == "withdraw":
            await self.store.withdraw(OWNERS[which % 2], f"k{other}")
        elif self.ids:
            await self._change(what, self.ids[which % len(self.ids)])

    async def _start(self, pool: str) -> str:
        owner = pool_owner(pool) if pool else OWNERS[0]
        new = replace(self._wish(owner, None), pool=pool, expires_at_ms=1 << 50)
        if isinstance(await self.store.admit(new, Limits(12)), Admitted):
            self.ids.append(new.id)
        return new.id

    async def _claim(self, owner: str, key: str | None) -> None:
        claim = await self.store.claim(self._wish(owner, key), QUOTA)
        if isinstance(claim, Claimed):
            self.given.append(claim.sandbox.id)
            assert (claim.sandbox.owner, claim.sandbox.state) == (owner, State.RUNNING)
            used = await self.store.usage(owner)
            assert used.sandboxes <= QUOTA.quota.sandboxes or owner == OWNERS[0]

    async def _change(self, what: str, sandbox_id: str) -> None:
        found = await self.store.get(sandbox_id)
        if found is None:
            return
        known = self.seen.setdefault(sandbox_id, found)
        if what == "give up":
            after = replace(found, idempotency_key=None, version=found.version + 1)
            await self.store.replace(after, found.version)
            return
        acts_on = known if what == "stale" else found
        event = {"end": Event.END, "retire": Event.RETIRE}.get(what) or _NEXT.get(acts_on.state)
        if event is None:
            return
        after = apply(acts_on, event, Change(end=END if event in (Event.END, Event.RETIRE) else None))
        if after is not acts_on:
            done = await self.store.replace(after, acts_on.version)
            assert not (done and event is Event.RETIRE and acts_on.warm)

    def _wish(self, owner: str, key: str | None) -> Sandbox:
        spec = SandboxSpec(image="a")
        name = f"sb-{self.name}{self.number}"
        return Sandbox(name, owner, spec, self.number, 1 << 50, spec.fingerprint(), idempotency_key=key)


async def check(stores: Sequence[Store], given: Sequence[str]) -> None:
    """No warm sandbox was given twice, and what is used is what a recount of the records says."""
    assert len(given) == len(set(given))
    everything = await stores[0].find(None, {})
    assert {one.id for one in everything if one.warm} == set(given)
    for owner in (None, *OWNERS, pool_owner("p")):
        recount = sum((Usage.of(one) for one in everything if owner in (None, one.owner)), Usage())
        assert await stores[-1].usage(owner) == recount
    counts = await stores[-1].counts()
    assert counts == {state: sum(one.state is state for one in everything) for state in State}
    # What is left warm can be claimed, all of it and nothing else.
    for number in range(counts[State.WARM] + 1):
        wish = Sandbox(f"sb-last{number}", "carol", SandboxSpec(image="a"), 0, 1 << 50, "f")
        assert isinstance(await stores[0].claim(wish, Limits()), Claimed) == (number < counts[State.WARM])
