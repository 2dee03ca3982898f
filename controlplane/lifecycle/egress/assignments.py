"""Which egress replica serves which sandbox, and the feeds of those that are connected here."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from controlplane.egress import NO_LIMITS, OwnerLimits, chosen
from controlplane.lifecycle.egress import messages
from controlplane.lifecycle.egress.policy_store import PolicyStore
from controlplane.lifecycle.egress.subscription import Assigned, Subscription
from controlplane.lifecycle.record.transition import Transition
from controlplane.lifecycle.tokens import SigningKey
from controlplane.model import UP, Sandbox

# Ids of replicas are names of pods.
MOST_ID_CHARS: Final = 128


class EgressAssignments:
    """All sandboxes with a policy. Changing it never blocks.

    Every control plane knows all sandboxes and all replicas, and so chooses the same replica for each; it tells those
    that are connected to it.
    """

    def __init__(self, key: SigningKey, policy_store: PolicyStore) -> None:
        self._key = key
        self._policy_store = policy_store
        self._bound: dict[str, Sandbox] = {}
        self._tokens: dict[str, str] = {}
        self._at: dict[str, str | None] = {}
        self._feeds: dict[str, Subscription] = {}
        self._live: frozenset[str] = frozenset()
        self._limit: Callable[[str], OwnerLimits] = _no_limits
        self._limits: dict[str, OwnerLimits] = {}  # by owner, as they were told last
        self.version = 0

    @property
    def connected(self) -> Collection[str]:
        """The replicas that are connected here."""
        return self._feeds.keys()

    @property
    def live(self) -> frozenset[str]:
        """The replicas that are connected to any control plane."""
        return self._live

    @property
    def sandboxes(self) -> Mapping[str, Sandbox]:
        """All that run and have a policy, by id."""
        return self._bound

    @property
    def unserved(self) -> int:
        """How many of them no replica serves. O(sandboxes)."""
        return sum(replica is None for replica in self._at.values())

    def digests(self) -> set[str]:
        """The policies that are in use."""
        return {one.egress.digest for one in self._bound.values()}

    def replica(self, sandbox_id: str) -> str | None:
        """The replica that serves a sandbox; None: there is none, or the sandbox needs none."""
        return self._at.get(sandbox_id)

    def on(self, transition: Transition) -> None:
        """Assigns, changes or withdraws what follows from a transition."""
        after = transition.after
        if after.end is not None:
            self._withdraw(after.id)
        elif after.egress.bound and after.state in UP:
            self._assign(after)

    def set_live(self, replicas: Collection[str]) -> None:
        """Says which replicas there are, here and elsewhere; sandboxes of those that have gone move."""
        if (live := frozenset(replicas)) == self._live:
            return
        self._live = live
        for sandbox in [*self._bound.values()]:
            self._move(sandbox)

    def limit_owners(self, limit: Callable[[str], OwnerLimits]) -> None:
        """Says what each owner's sandboxes may use together."""
        self._limit = limit

    def limits_changed(self) -> None:
        """Sends an owner's limits again, for all its sandboxes, where one has changed."""
        changed = {owner for owner, told in self._limits.items() if self._limit(owner) != told}
        for sandbox in [*self._bound.values()]:
            if sandbox.owner in changed:
                self._tell(self._at[sandbox.id], sandbox.id, sandbox)
        for owner in changed:
            self._limits[owner] = self._limit(owner)

    @contextmanager
    def subscribe(self, replica: str) -> Iterator[Subscription]:
        """The feed of one replica, which begins with all that it serves; a second one of its name ends the first."""
        served = {one: self._assignment(self._bound[one]) for one, at in self._at.items() if at == replica}
        feed = Subscription(replica, served, self._policy_store)
        self._feeds[replica] = feed
        self.set_live(self._live | {replica})
        try:
            yield feed
        finally:
            if self.serves(feed):
                del self._feeds[replica]
                self.set_live(self._live - {replica})

    def serves(self, feed: Subscription) -> bool:
        """Whether it is still the feed of its replica."""
        return self._feeds.get(feed.replica) is feed

    def _assign(self, sandbox: Sandbox) -> None:
        known = self._bound.get(sandbox.id)
        if known is not None and sandbox.egress.revision < known.egress.revision:
            return
        self._bound[sandbox.id] = sandbox
        if known is None:
            self._at[sandbox.id] = chosen(sandbox.id, self._live)
        elif _told(known) == _told(sandbox):
            return
        self._tell(self._at[sandbox.id], sandbox.id, sandbox)

    def _move(self, sandbox: Sandbox) -> None:
        before, now = self._at[sandbox.id], chosen(sandbox.id, self._live)
        if before != now:
            self._at[sandbox.id] = now
            self._tell(before, sandbox.id, None)
            self._tell(now, sandbox.id, sandbox, moved=before is not None)

    def _withdraw(self, sandbox_id: str) -> None:
        if self._bound.pop(sandbox_id, None) is not None:
            self._tokens.pop(sandbox_id, None)
            self._tell(self._at.pop(sandbox_id), sandbox_id, None)

    def _tell(self, replica: str | None, sandbox_id: str, sandbox: Sandbox | None, *, moved: bool = False) -> None:
        if replica is not None and (feed := self._feeds.get(replica)) is not None:
            self.version += 1
            feed.push(sandbox_id, None if sandbox is None else self._assignment(sandbox, moved=moved))

    def _assignment(self, sandbox: Sandbox, *, moved: bool = False) -> Assigned:
        # Signed once: it costs more than the rest, and a switch does not need another one.
        if (token := self._tokens.get(sandbox.id)) is None:
            token = self._tokens[sandbox.id] = self._key.egress_token(sandbox).text
        limit = self._limits[sandbox.owner] = self._limit(sandbox.owner)
        told = messages.assignment(sandbox, token, limit, moved=moved)
        return Assigned(told, sandbox.egress.digest, limit)


def _no_limits(owner: str) -> OwnerLimits:
    del owner
    return NO_LIMITS


def _told(sandbox: Sandbox) -> tuple[object, ...]:
    """What its replica is told of it."""
    return sandbox.address, sandbox.generation, sandbox.owner, sandbox.egress.digest, sandbox.egress.revision
