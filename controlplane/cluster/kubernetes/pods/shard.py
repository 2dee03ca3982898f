"""The headless Service (shard) of a sandbox's name. Pure; the gateway computes the same (``vectors/shard.json``)."""

from typing import Final

_OFFSET: Final = 0x811C9DC5
_PRIME: Final = 0x01000193


def fnv1a(data: bytes) -> int:
    """The 32-bit FNV-1a hash: simple to implement in every language; it need not be unpredictable."""
    digest = _OFFSET
    for byte in data:
        digest = (digest ^ byte) * _PRIME & 0xFFFFFFFF
    return digest


def shard_of(sandbox_id: str, shards: int) -> int:
    """The shard of a sandbox, from 0 to ``shards`` - 1."""
    return fnv1a(sandbox_id.encode()) % shards
