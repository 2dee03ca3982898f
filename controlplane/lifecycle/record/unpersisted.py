"""Facts that a replica keeps because a lost store cannot be rebuilt with them: the cluster does not have them.

Readiness, claims and extensions are written to the cluster in the background, and the cluster has nothing of a sandbox
whose end is confirmed. So every replica keeps such facts for a while, its own and those from the feed: any replica that
survives can store them again. No such fact is ever revoked. So an end outweighs a claim, a claim outweighs readiness,
and of two expiries the later one holds. All outweigh what a rebuild reads from the cluster, and the record of a start
that another replica still takes for unfinished.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from controlplane.clock import Clock
from controlplane.lifecycle.record.timeline import extended_at_ms
from controlplane.model import Sandbox, State

# Longer than the time until some replica next compares cluster and records, and writes missing claims to the cluster.
KEPT_MS: Final = 120_000
# Guess: a minute of the busiest installation; some kilobytes each.
MOST_KEPT: Final = 10_000


class UnpersistedFacts:
    """Records that got ready, were claimed, extended or ended in the last minutes.

    A claim that this replica made is kept until the cluster has it.

    Attributes:
        records: the newest known record by id; read only.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._records: dict[str, Sandbox] = {}
        self._since_ms: dict[str, int] = {}  # of those that may be forgotten, in order
        self.records: Mapping[str, Sandbox] = self._records

    def hold(self, claimed: Sandbox) -> None:
        """Keeps a claim until ``persisted``, and a while longer; not if its end is known already."""
        if not self.outweighs(claimed):
            self._records[claimed.id] = claimed

    def persisted(self, sandbox_id: str) -> None:
        """Says that the cluster has this claim; it is dropped ``KEPT_MS`` later."""
        if sandbox_id in self._records:
            self._date(sandbox_id)

    def observe(self, sandbox: Sandbox) -> None:
        """Keeps a record that got ready, was claimed, extended or ended lately, or that is newer than the one kept."""
        known = self._records.get(sandbox.id)
        at_ms = _at_ms(sandbox)
        if at_ms is None or (known is None and at_ms < self._clock.now_ms() - KEPT_MS):
            return
        if known is not None and (_weight(known), known.version) >= (_weight(sandbox), sandbox.version):
            return
        self._records[sandbox.id] = sandbox
        if known is None or sandbox.end is not None or sandbox.id in self._since_ms:
            self._date(sandbox.id)

    def outweighs(self, sandbox: Sandbox) -> bool:
        """Whether a record lacks what is known here: the store was lost, or the replica that wrote it was behind."""
        known = self._records.get(sandbox.id)
        return known is not None and _weight(known) > _weight(sandbox)

    def corrected(self, sandbox: Sandbox) -> Sandbox:
        """The next version of an outweighed record, with the facts that are known here."""
        known = self._records[sandbox.id]
        if known.end is None and _rank(known) == _rank(sandbox):
            known = replace(sandbox, expires_at_ms=known.expires_at_ms)
        return replace(known, version=sandbox.version + 1)

    def forget(self) -> None:
        """Drops records that are older than ``KEPT_MS`` or over ``MOST_KEPT``; call it periodically."""
        before_ms = self._clock.now_ms() - KEPT_MS
        while self._since_ms:
            sandbox_id, since_ms = next(iter(self._since_ms.items()))
            if since_ms > before_ms and len(self._since_ms) <= MOST_KEPT:
                return
            del self._since_ms[sandbox_id], self._records[sandbox_id]

    def _date(self, sandbox_id: str) -> None:
        self._since_ms.pop(sandbox_id, None)
        self._since_ms[sandbox_id] = self._clock.now_ms()


def _at_ms(sandbox: Sandbox) -> int | None:
    """When it last got ready, was claimed, extended or ended; None: it neither runs nor has an end."""
    if sandbox.end is not None:
        return sandbox.end.at_ms
    if sandbox.state is not State.RUNNING:
        return None
    moments = (sandbox.ready_at_ms, sandbox.claimed_at_ms, extended_at_ms(sandbox))
    return max((at for at in moments if at is not None), default=None)


def _weight(sandbox: Sandbox) -> tuple[int, int]:
    return (_rank(sandbox), 0 if sandbox.end is not None else sandbox.expires_at_ms)


def _rank(sandbox: Sandbox) -> int:
    """How far it has come: 0 starting, 1 ready, 2 claimed, 3 ended."""
    if sandbox.end is not None:
        return 3
    return 2 if sandbox.warm else int(not sandbox.state.unready)
