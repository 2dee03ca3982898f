"""What lies in the store of a soak, word for word: the evidence when its counts and its lists differ."""

from __future__ import annotations

import json
from pathlib import Path

from redis import Redis

# Tombstones are many, and tell nothing of what is counted.
ENDED = "ended"


def keep(socket: Path, path: Path) -> None:
    """Write every key of the store to a file; of records those that have not ended."""
    with Redis(unix_socket_path=str(socket), decode_responses=True) as redis:
        read = {"string": redis.get, "hash": redis.hgetall, "zset": lambda key: redis.zrange(key, 0, -1)}
        kinds = {key: redis.type(key) for key in redis.scan_iter(count=1000)}
        # A lease may have lapsed meanwhile.
        found = {key: read[kind](key) for key, kind in kinds.items() if kind in read}
    told = {key: value for key, value in found.items() if not (":s:" in key and value.get("state") == ENDED)}
    path.write_text(json.dumps(told, indent=1) + "\n")
