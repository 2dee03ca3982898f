"""All that ends a sandbox because of time alone: its ttl, its idle timeout, its lease, creators that went away."""

from collections.abc import Coroutine, Mapping
from typing import Any

from controlplane.lifecycle.dependencies import Dependencies
from controlplane.lifecycle.expiry.abandoned import Abandoned
from controlplane.lifecycle.expiry.activity import Activity
from controlplane.lifecycle.expiry.idle import Idle
from controlplane.lifecycle.expiry.leases import Leases
from controlplane.lifecycle.expiry.ttl import Ttl
from controlplane.lifecycle.record.ledger import Ledger
from controlplane.lifecycle.record.recovering_store import RecoveringStore
from controlplane.lifecycle.record.transition import Transition


class Expiry:
    """Watches live sandboxes, each by its record; subscribes to the ledger.

    Attributes:
        ttl, idle, leases, abandoned: the four; each has a loop of its own.
        activity: what is in use.
    """

    def __init__(self, deps: Dependencies, store: RecoveringStore, ledger: Ledger) -> None:
        clock = deps.clock
        self.activity = Activity(clock, deps.sidecars, deps.key)
        self.ttl = Ttl(clock, store, ledger)
        self.idle = Idle(clock, store, ledger, self.activity)
        self.leases = Leases(clock, store, ledger, self.activity, deps.store.replica)
        self.abandoned = Abandoned(clock, store, ledger)
        self._all = (self.ttl, self.idle, self.leases, self.abandoned)

    def loops(self) -> Mapping[str, Coroutine[Any, Any, None]]:
        """What has to run for as long as sandboxes live, by name."""
        return {
            "ttl": self.ttl.run(),
            "idle": self.idle.run(),
            "leases": self.leases.run(),
            "abandoned": self.abandoned.run(),
        }

    def on(self, transition: Transition) -> None:
        """Takes in what is on record of it; repeating is fine. A sandbox that has an end is forgotten."""
        sandbox = transition.after
        for one in self._all:
            if sandbox.end is None:
                one.watch(sandbox)
            else:
                one.forget(sandbox.id)
