"""What clients of a soak ask for. A wish follows from its key alone, so that all who bring the key want the same."""

from __future__ import annotations

import os
import random
import time
from dataclasses import dataclass, field
from typing import Any

WARM_IMAGE = "localhost/chaos/warm:1"
COLD_IMAGE = "localhost/chaos/cold:1"
# Where sandboxes are real they all have this image; the cold ones are larger than those of the pool.
REAL_IMAGE = os.environ.get("ROLLBOX_CHAOS_IMAGE", "")
WARM_MEMORY, COLD_MEMORY = "128Mi", "160Mi"
START_WITHIN_S = 90.0 if REAL_IMAGE else 15.0
# The short lease; the long one outlives a soak.
LEASE_S = 5.0
# Those that come with the same key come within this time, as a rule.
KEYS_FOR_S = 4.0
KEYS_AT_A_TIME = 6


@dataclass(frozen=True, slots=True)
class Wish:
    """One create.

    Attributes:
        label: its value of the label `batch`.
        leased: whether it goes soon after its client.
        options: for `Client.create`.
    """

    image: str
    label: str
    ttl_s: float
    leased: bool
    options: dict[str, Any] = field(default_factory=dict)


def wish_of(key: str) -> Wish:
    """What is asked for under this key."""
    draw = random.Random(key)
    image, label = (COLD_IMAGE if draw.random() < 0.4 else WARM_IMAGE), f"b{draw.randrange(10)}"
    ttl_s = draw.uniform(4, 15) if draw.random() < 0.15 else 3600.0
    lease_s = draw.choice((None, LEASE_S, 600.0, 600.0))
    env = {"SEED": key} if draw.random() < 0.3 else None
    options = {"labels": {"batch": label}, "ttl": ttl_s, "lease": lease_s, "env": env, "start_timeout": START_WITHIN_S}
    if REAL_IMAGE:
        # Of a real start nobody knows how long it takes.
        ttl_s = max(ttl_s, 4 * START_WITHIN_S)
        options |= {"memory": COLD_MEMORY if image == COLD_IMAGE else WARM_MEMORY, "ttl": ttl_s}
    return Wish(REAL_IMAGE or image, label, ttl_s, lease_s == LEASE_S, options)


def shared_key(kind: str, draw: random.Random) -> str:
    """A key that other clients bring now, too; one in ten is of the past."""
    window = int(time.monotonic() / KEYS_FOR_S) - (draw.randrange(1, 10) if draw.random() < 0.1 else 0)
    return f"{kind}-{window}-{draw.randrange(KEYS_AT_A_TIME)}"
