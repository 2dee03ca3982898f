"""Stores for records: a protocol with atomic steps; one store in memory, one with a journal of ends, one in Redis.

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
    Due,
    FeedMessage,
    Fence,
    FencedError,
    Full,
    Known,
    Miscount,
    Page,
    Rebuild,
    RebuildTurn,
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
    "Due",
    "FeedMessage",
    "Fence",
    "FencedError",
    "Full",
    "Journal",
    "JournaledStore",
    "Known",
    "MemoryStore",
    "Miscount",
    "Page",
    "Rebuild",
    "RebuildTurn",
    "RedisStore",
    "Resync",
    "Slot",
    "SlotFreed",
    "Store",
    "StoreLostError",
    "UnreadableRecordError",
    "Withdrawn",
]
