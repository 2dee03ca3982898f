"""Records for the suites of stores, and what brings them where they are wanted."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

from controlplane.model import EndCause, Limits, Sandbox, SandboxSpec, State, pool_owner
from controlplane.store import Store

Advance = Callable[[float], Awaitable[None]]
Lose = Callable[[], Awaitable[None]]
Now = Callable[[], int]
DAY_S = 24 * 3600


def sandbox(
    sandbox_id: str,
    *,
    key: str | None = None,
    owner: str = "alice",
    labels: dict[str, str] | None = None,
    at_ms: int = 0,
) -> Sandbox:
    """A new record."""
    spec = SandboxSpec(image="a", labels=labels or {})
    return Sandbox(sandbox_id, owner, spec, at_ms, at_ms + 1, "f", idempotency_key=key)


def ended(before: Sandbox) -> Sandbox:
    """The record after its end."""
    end = EndCause("deleted", "d", 1, "alice")
    return replace(before, state=State.ENDED, end=end, version=before.version + 1)


async def starting(store: Store, sandbox_id: str, pool: str = "p", expires_at_ms: int = 1 << 50) -> Sandbox:
    """The record of a pool's sandbox whose start is under way."""
    new = replace(sandbox(sandbox_id, owner=pool_owner(pool)), pool=pool, expires_at_ms=expires_at_ms)
    await store.admit(new, Limits())
    after = replace(new, state=State.STARTING, version=1)
    assert await store.replace(after, 0)
    return after


async def warm(
    store: Store, sandbox_id: str, pool: str = "p", ready_at_ms: int = 1, expires_at_ms: int = 1 << 50
) -> Sandbox:
    """The record of a warm sandbox."""
    before = await starting(store, sandbox_id, pool, expires_at_ms)
    after = replace(before, state=State.WARM, version=2, ready_at_ms=ready_at_ms, address="http://10.0.0.1:7070")
    assert await store.replace(after, 1)
    return after
