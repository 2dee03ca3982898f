"""The store of a single process, with a journal from which tombstones, their keys and withdrawn keys survive a restart.

Running sandboxes are not in the journal: a restart reads them from the cluster.
"""

from typing import Any

from controlplane.clock import Clock
from controlplane.model import Sandbox, dump_tombstone, load_tombstone
from controlplane.store.journal import Journal
from controlplane.store.memory import MemoryStore


class JournaledStore(MemoryStore):
    """A ``MemoryStore`` that begins with the ends in ``journal`` and writes every new end to it.

    An end is written when it begins, not when the cluster has confirmed it: if this control plane stops in between, the
    next one must not adopt the sandbox.

    Raises:
        OSError: the journal cannot be read or written.
    """

    def __init__(self, clock: Clock, journal: Journal) -> None:
        super().__init__(clock)
        self._journal = journal
        kept = [entry for entry in journal.read() if self._take_in(entry)]
        journal.rewrite(iter(kept))

    async def replace(self, sandbox: Sandbox, expected_version: int) -> bool:
        """See ``Store.replace``."""
        before = await self.get(sandbox.id)
        done = await super().replace(sandbox, expected_version)
        # Once, and again when its key is freed: the last entry about a sandbox counts.
        news = before is None or before.end is None or before.idempotency_key != sandbox.idempotency_key
        if done and sandbox.end is not None and news:
            self._journal.append({"tombstone": dump_tombstone(sandbox)})
        return done

    async def restore(self, sandbox: Sandbox) -> bool:
        """See ``Store.restore``."""
        restored = await super().restore(sandbox)
        if restored and sandbox.end is not None:
            self._journal.append({"tombstone": dump_tombstone(sandbox)})
        return restored

    async def withdraw(self, owner: str, key: str, call_id: str = "") -> Sandbox | None:
        """See ``Store.withdraw``."""
        # A withdrawal that is repeated must not push ends out of the file.
        news = (owner, key, call_id) not in self._withdrawn
        known = await super().withdraw(owner, key, call_id)
        if known is None and news:
            withdrawn = {"owner": owner, "key": key, "call_id": call_id, "at_ms": self._clock.now_ms()}
            self._journal.append({"withdrawn": withdrawn})
        return known

    def _take_in(self, entry: dict[str, Any]) -> bool:
        oldest_ms = self._clock.now_ms() - self._tombstone_ms
        sandbox = load_tombstone(entry.get("tombstone"))
        if sandbox is not None and sandbox.end is not None and sandbox.end.at_ms > oldest_ms:
            self.add_tombstone(sandbox, sandbox.end.at_ms)
            return True
        match entry.get("withdrawn"):
            case {"owner": str(owner), "key": str(key), "at_ms": int(at_ms), **more} if at_ms > oldest_ms:
                self.withdrawn_before(owner, key, str(more.get("call_id", "")), at_ms)
                return True
        return False
