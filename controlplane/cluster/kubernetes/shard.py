"""Which headless Service a sandbox's name stands in. Pure; the gateway computes the same (``vectors/shard.json``)."""

from typing import Final

_OFFSET: Final = 0x811C9DC5
_PRIME: Final = 0x01000193


def fnv1a(data: bytes) -> int:
    """FNV-1a with 32 bits: the same in every language, and in no need of being hard to foresee."""
    digest = _OFFSET
    for byte in data:
        digest = (digest ^ byte) * _PRIME & 0xFFFFFFFF
    return digest


def shard_of(sandbox_id: str, shards: int) -> int:
    """The shard of a sandbox, from 0 to ``shards`` - 1."""
    return fnv1a(sandbox_id.encode()) % shards
