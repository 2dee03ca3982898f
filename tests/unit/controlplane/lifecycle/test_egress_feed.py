"""The feed of an egress replica, beside a replica that forgets every policy that no sandbox of its has."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from controlplane.clock import SystemClock
from controlplane.egress import NO_LIMITS, Compiled, EgressOptions
from controlplane.lifecycle.egress.policy_store import PolicyStore
from controlplane.lifecycle.egress.subscription import Assigned, Subscription
from controlplane.wire import egress_pb2 as wire

POLICIES = [Compiled(name, "open") for name in ("a", "b", "c")]
# A sandbox, and the policy that it gets; None: it is withdrawn. Or the replica takes in what it was sent.
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["sb-1", "sb-2", "sb-3"]), st.sampled_from([*POLICIES, None])),
        st.just("take"),
    ),
    max_size=40,
)


def assigned(sandbox_id: str, policy: Compiled) -> Assigned:
    told = wire.Assignment(sandbox_id=sandbox_id, policy_digest=policy.digest)
    return Assigned(told, policy.digest, NO_LIMITS)


class Replica:
    """As the real one takes messages in, but that it forgets at once."""

    def __init__(self) -> None:
        self.policies: dict[str, wire.Policy] = {}
        self.has: dict[str, str] = {}

    def take(self, update: wire.Update) -> None:
        snapshot = update.HasField("snapshot")
        news = update.snapshot if snapshot else update.delta
        if snapshot:
            self.policies.clear()
            self.has.clear()
        self.policies |= {one.digest: one for one in news.policies}
        for gone in update.delta.withdrawn:
            self.has.pop(gone, None)
        for one in news.assignments:
            assert one.policy_digest in self.policies, "the policy of an assignment is not known, nothing is allowed"
            self.has[one.sandbox_id] = one.policy_digest
        self.policies = {digest: self.policies[digest] for digest in {*self.has.values()}}


@given(STEPS)
def test_a_replica_that_forgets_knows_the_policy_of_every_assignment(steps: list[object]) -> None:
    policy_store = PolicyStore(None, SystemClock(), EgressOptions(3128))  # type: ignore[arg-type]  # it holds all of them in memory
    for policy in POLICIES:
        policy_store.hold(policy)
    feed, replica, wanted = Subscription("e1", {}, policy_store), Replica(), dict[str, str]()

    async def run() -> None:
        replica.take(await feed.next(0))
        changed = False
        for step in [*steps, "take"]:
            match step:
                case (str(sandbox_id), Compiled() as policy):
                    feed.push(sandbox_id, assigned(sandbox_id, policy))
                    wanted[sandbox_id], changed = policy.digest, True
                case (str(sandbox_id), None):
                    feed.push(sandbox_id, None)
                    wanted.pop(sandbox_id, None)
                    changed = True
                case _ if changed:
                    replica.take(await feed.next(0))
                    changed = False
        assert replica.has == wanted

    asyncio.run(run())


async def test_a_policy_that_is_in_use_is_sent_once() -> None:
    policy_store = PolicyStore(None, SystemClock(), EgressOptions(3128))  # type: ignore[arg-type]  # it holds all of them in memory
    for policy in POLICIES:
        policy_store.hold(policy)
    first, other = POLICIES[:2]
    feed = Subscription("e1", {"sb-1": assigned("sb-1", first)}, policy_store)
    assert [one.digest for one in (await feed.next(0)).snapshot.policies] == [first.digest]
    feed.push("sb-2", assigned("sb-2", first))
    assert not (await feed.next(0)).delta.policies
    for sandbox_id in ("sb-1", "sb-2"):
        feed.push(sandbox_id, assigned(sandbox_id, other))
    assert [one.digest for one in (await feed.next(0)).delta.policies] == [other.digest]
    feed.push("sb-1", assigned("sb-1", first))
    assert [one.digest for one in (await feed.next(0)).delta.policies] == [first.digest]
