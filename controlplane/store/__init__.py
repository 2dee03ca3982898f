"""Where records are kept: a protocol with atomic steps; in memory, with a journal of the ends, in Redis for many.

May import model, errors, clock.
"""

from controlplane.store.journal import Journal
from controlplane.store.journaled import JournaledStore
from controlplane.store.memory import MemoryStore
from controlplane.store.protocol import (
    Admission,
    Admitted,
    Changed,
    Claim,
    Claimed,
    Custody,
    Due,
    Fence,
    FencedError,
    Full,
    Known,
    Miscount,
    News,
    Rebuild,
    Resync,
    Slot,
    SlotFreed,
    Store,
    StoreLostError,
    UnreadableRecordError,
    Withdrawn,
)
from controlplane.store.redis import RedisStore

__all__ = [
    "Admission",
    "Admitted",
    "Changed",
    "Claim",
    "Claimed",
    "Custody",
    "Due",
    "Fence",
    "FencedError",
    "Full",
    "Journal",
    "JournaledStore",
    "Known",
    "MemoryStore",
    "Miscount",
    "News",
    "Rebuild",
    "RedisStore",
    "Resync",
    "Slot",
    "SlotFreed",
    "Store",
    "StoreLostError",
    "UnreadableRecordError",
    "Withdrawn",
]
