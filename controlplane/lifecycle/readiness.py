"""The door for the sidecars' pushes: who may push, what it means, who waits for it."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from controlplane.errors import Problem
from controlplane.lifecycle.tokens import SigningKey
from controlplane.model import State
from controlplane.store import Store


@dataclass(frozen=True, slots=True)
class Push:
    """What a sidecar says when it has run a command in its sandbox, or knows that it never will.

    Attributes:
        sandbox_id: whom it speaks for; must be whom its credential speaks for.
        address: where it answers; empty when the cluster knows.
        kernel: as seen in the sandbox.
        boot_ms: how long its own start took, until a command had run.
        failure: why it will never be ready.
    """

    sandbox_id: str
    address: str = ""
    kernel: str = ""
    boot_ms: int = 0
    failure: Problem | None = None


class Readiness:
    """Matches pushes with starts. A push is safe to repeat; a forged one changes nothing."""

    def __init__(self, key: SigningKey, store: Store) -> None:
        self._key = key
        self._store = store
        self._awaited: dict[str, asyncio.Future[Push]] = {}

    @contextmanager
    def awaited(self, sandbox_id: str) -> Iterator[asyncio.Future[Push]]:
        """Announces a start, before the cluster hears of it: a push may be faster than the engine's answer."""
        future: asyncio.Future[Push] = asyncio.get_running_loop().create_future()
        self._awaited[sandbox_id] = future
        try:
            yield future
        finally:
            del self._awaited[sandbox_id]
            future.cancel()

    async def accept(self, credential: str, push: Push) -> None:
        """Takes a push; returns when it is acknowledged (also when it is a repetition).

        Raises:
            Problem: unauthenticated or permission_denied (forged), sandbox_not_found (unknown here), or the cause of
                the end when it comes too late: the sidecar may stop repeating it.
        """
        speaks_for = self._key.verify_readiness(credential)
        if speaks_for != push.sandbox_id:
            raise Problem("permission_denied", f"the credential speaks for {speaks_for}, not for {push.sandbox_id}")
        sandbox = await self._store.get(push.sandbox_id)
        if sandbox is None:
            raise Problem("sandbox_not_found", f"there is no sandbox {push.sandbox_id}")
        if sandbox.end is not None:
            raise sandbox.end.problem(sandbox.id)
        future = self._awaited.get(push.sandbox_id)
        if future is not None and not future.done():
            future.set_result(push)
        elif future is None and sandbox.state is not State.RUNNING:
            raise Problem("upstream_timeout", f"nobody waits for {push.sandbox_id} here yet", retry_after_ms=100)
