"""All that ends a sandbox because of time alone: its ttl, its idle timeout, its owner's lease, absent creators."""

from controlplane.clock import Clock
from controlplane.lifecycle.abandoned import Abandoned
from controlplane.lifecycle.activity import Activity
from controlplane.lifecycle.idle import End, Idle
from controlplane.lifecycle.keeper import Keeper
from controlplane.lifecycle.leases import Leases
from controlplane.lifecycle.parts import Parts
from controlplane.lifecycle.reaper import Reaper
from controlplane.model import Sandbox


class Care:
    """Watches live sandboxes, each by its record.

    Args:
        end: ends a sandbox.

    Attributes:
        ttl, idle, leases, abandoned: the four; each has a loop of its own.
        activity: what is in use.
    """

    def __init__(self, parts: Parts, store: Keeper, end: End) -> None:
        clock: Clock = parts.clock
        self.activity = Activity(clock, parts.sidecars, parts.key)
        self.ttl = Reaper(clock)
        self.idle = Idle(clock, store, self.activity, end)
        self.leases = Leases(clock, store, self.activity, parts.store.replica, end)
        self.abandoned = Abandoned(clock, store, end)

    def watch(self, sandbox: Sandbox) -> None:
        """Takes in what is on record of it; repeating is fine. One that has an end is forgotten."""
        if sandbox.end is not None:
            self.forget(sandbox.id)
            return
        self.ttl.watch(sandbox.id, sandbox.expires_at_ms)
        self.idle.watch(sandbox)
        self.leases.watch(sandbox)
        self.abandoned.watch(sandbox)

    def forget(self, sandbox_id: str) -> None:
        """Its end has begun; unknown ids are fine."""
        self.ttl.forget(sandbox_id)
        self.idle.forget(sandbox_id)
        self.leases.forget(sandbox_id)
        self.abandoned.forget(sandbox_id)
