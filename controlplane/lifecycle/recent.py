"""What a replica remembers because a store that is emptied forgets it, and the cluster cannot tell it yet, or ever.

Readiness, a claim and an extension are written to the cluster behind, and of one whose end was confirmed the cluster
has nothing any more. So every replica keeps what it does and hears of them for a while: any one that lives can say it
again. None is ever taken back: an end outweighs a claim, a claim readiness, of two lives the longer one is true, and
all outweigh what a rebuild reads from the cluster, and a start that another replica still takes for unfinished.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from controlplane.clock import Clock
from controlplane.lifecycle.timeline import extended_at_ms
from controlplane.model import Sandbox, State

# Longer than it takes until the cluster and the record are compared next, by whomever, and the claim is written there.
KEPT_MS: Final = 120_000
# Guess: a minute of the busiest installation; some kilobytes each.
MOST_KEPT: Final = 10_000


class Recent:
    """What got ready, was claimed, extended or ended in the last minutes; an own claim until the cluster knows of it.

    Attributes:
        records: as they were last heard of, by id; only read it.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._records: dict[str, Sandbox] = {}
        self._since_ms: dict[str, int] = {}  # of those that may be forgotten, in order
        self.records: Mapping[str, Sandbox] = self._records

    def hold(self, claimed: Sandbox) -> None:
        """Keeps a claim until ``told``, and a while longer; not if its end was heard of first."""
        if not self.outweighs(claimed):
            self._records[claimed.id] = claimed

    def told(self, sandbox_id: str) -> None:
        """Says that the cluster knows of this claim."""
        if sandbox_id in self._records:
            self._date(sandbox_id)

    def hear(self, sandbox: Sandbox) -> None:
        """Keeps it if it got ready, was claimed, extended or ended of late, or says more of one that is kept."""
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
        """Whether a record is older than what is known here: of an emptied store, or a replica that had not heard."""
        known = self._records.get(sandbox.id)
        return known is not None and _weight(known) > _weight(sandbox)

    def corrected(self, sandbox: Sandbox) -> Sandbox:
        """The next version of a record that is outweighed, with what is known here."""
        known = self._records[sandbox.id]
        if known.end is None and _rank(known) == _rank(sandbox):
            known = replace(sandbox, expires_at_ms=known.expires_at_ms)
        return replace(known, version=sandbox.version + 1)

    def forget(self) -> None:
        """Drops what is old or too much; call it now and then."""
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
    """When it got ready, was last claimed, extended or ended."""
    if sandbox.end is not None:
        return sandbox.end.at_ms
    if sandbox.state is not State.RUNNING:
        return None
    moments = (sandbox.ready_at_ms, sandbox.claimed_at_ms, extended_at_ms(sandbox))
    return max((at for at in moments if at is not None), default=None)


def _weight(sandbox: Sandbox) -> tuple[int, int]:
    return (_rank(sandbox), 0 if sandbox.end is not None else sandbox.expires_at_ms)


def _rank(sandbox: Sandbox) -> int:
    """How far it has come: its start, readiness, a claim, its end."""
    if sandbox.end is not None:
        return 3
    return 2 if sandbox.warm else int(not sandbox.state.unready)
