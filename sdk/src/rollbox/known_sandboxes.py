"""The sandboxes that this client was given: the platform must know them, or say why they ended."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

from rollbox._problem import SandboxError
from rollbox.errors import SandboxForgotten, SandboxNotFound

# As long as the platform keeps the tombstone of a sandbox.
_KEPT_S = 24 * 3600.0
# About 100 bytes each. With more, the oldest are dropped: if the platform forgets those, the error is SandboxNotFound.
_MOST = 16_384


class KnownSandboxes:
    """The sandboxes that this client was given and has not deleted, for a day after it last got their token.

    Args:
        now: a monotonic clock in seconds; tests pass their own.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._since_s: OrderedDict[str, float] = OrderedDict()

    def add(self, sandbox_id: str) -> None:
        """Record a sandbox that the platform has just returned with its token."""
        self._since_s.pop(sandbox_id, None)
        self._since_s[sandbox_id] = self._now()
        if len(self._since_s) > _MOST:
            self._since_s.popitem(last=False)

    def remove(self, *sandbox_ids: str) -> None:
        """Remove sandboxes that this client has deleted; unknown ids are fine."""
        for sandbox_id in sandbox_ids:
            self._since_s.pop(sandbox_id, None)

    def raise_if_forgotten(self, error: SandboxError) -> None:
        """Raise another error in place of SandboxNotFound for a sandbox that the platform must know.

        Raises:
            SandboxForgotten: this client was given the sandbox and has not deleted it.
        """
        if not isinstance(error, SandboxNotFound) or error.sandbox_id is None:
            return
        since_s = self._since_s.get(error.sandbox_id)
        if since_s is None or self._now() - since_s > _KEPT_S:
            return
        raise SandboxForgotten(
            f"sandbox {error.sandbox_id} was given to this client, which has not deleted it, and the platform does not "
            "know it any more",
            details=error.details,
            sandbox_id=error.sandbox_id,
            request_id=error.request_id,
        ) from error
