"""Which egress replica serves a sandbox: by rendezvous hashing one that comes or goes moves only its own sandboxes."""

from collections.abc import Collection
from hashlib import blake2b


def chosen(sandbox_id: str, replicas: Collection[str]) -> str | None:
    """The replica for this sandbox; None: there is none. Cost: one hash for each replica, 1 us.

    Every control plane computes it from the same ids, in whatever order, and comes to the same one.
    """
    return max(replicas, key=lambda replica: (_weight(sandbox_id, replica), replica), default=None)


def _weight(sandbox_id: str, replica: str) -> bytes:
    return blake2b(f"{sandbox_id}\0{replica}".encode(), digest_size=8).digest()
