"""What one egress replica has not been told yet: for each sandbox the last word, so that it is bounded by these."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from controlplane.egress import OwnerLimits
from controlplane.lifecycle.egress import messages
from controlplane.lifecycle.egress.policy_store import PolicyStore
from controlplane.wire import egress_pb2 as wire

# The most sandboxes in one delta.
TOGETHER: Final = 512


@dataclass(frozen=True, slots=True)
class Assigned:
    """An assignment, and what its policy is made of: the digest of its rules, and the limits of its owner."""

    assignment: wire.Assignment
    digest: str
    limits: OwnerLimits


class Subscription:
    """The feed of one replica.

    Args:
        replica: its id.
        assigned: all sandboxes that it serves at this moment.
        policy_store: has their policies.
    """

    def __init__(self, replica: str, assigned: Mapping[str, Assigned], policy_store: PolicyStore) -> None:
        self.replica = replica
        self._changed: dict[str, Assigned | None] = dict(assigned)
        self._policy_store = policy_store
        # By sandbox, the policy that the replica was told last, and how many have each: it may forget what none has.
        self._told: dict[str, str] = {}
        self._in_use: Counter[str] = Counter()
        self._begun = False
        self._more = asyncio.Event()

    def push(self, sandbox_id: str, assigned: Assigned | None) -> None:
        """Tells it of one sandbox; None: it does not serve that any more."""
        # To the end: an order in which each sandbox's last word comes last.
        untold = self._changed.pop(sandbox_id, None)
        if assigned is not None and untold is not None and untold.assignment.moved:
            assigned.assignment.moved = True
        self._changed[sandbox_id] = assigned
        self._more.set()

    async def next(self, version: int) -> wire.Update:
        """The snapshot, then what has changed since; waits until there is something.

        A cancelled call takes nothing.

        Raises:
            Problem: the store does not tell a policy; nothing is taken.
        """
        while self._begun and not self._changed:
            self._more.clear()
            await self._more.wait()
        most = TOGETHER if self._begun else len(self._changed)
        batch = dict([*self._changed.items()][:most])
        served = [one for one in batch.values() if one is not None]
        assignments = [one.assignment for one in served]
        named = {one.assignment.policy_digest: one for one in served}
        missing = {digest: one for digest, one in named.items() if not self._in_use[digest]}
        policies = [
            messages.policy(digest, await self._policy_store.get(one.digest), one.limits)
            for digest, one in sorted(missing.items())
        ]
        # Nothing is awaited from here on. What has a later word by now is told that.
        for sandbox_id, told in batch.items():
            if self._changed.get(sandbox_id, 0) is told:
                del self._changed[sandbox_id]
            self._note(sandbox_id, None if told is None else told.assignment.policy_digest)
        begun, self._begun = self._begun, True
        if not begun:
            return wire.Update(version=version, snapshot=wire.Snapshot(policies=policies, assignments=assignments))
        withdrawn = [sandbox_id for sandbox_id, one in batch.items() if one is None]
        delta = wire.Delta(policies=policies, assignments=assignments, withdrawn=withdrawn)
        return wire.Update(version=version, delta=delta)

    def _note(self, sandbox_id: str, digest: str | None) -> None:
        if (before := self._told.pop(sandbox_id, None)) is not None:
            self._in_use[before] -= 1
            if not self._in_use[before]:
                del self._in_use[before]
        if digest is not None:
            self._told[sandbox_id] = digest
            self._in_use[digest] += 1
