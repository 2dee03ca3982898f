"""Keeps the rules of policies by digest, once for all sandboxes that have them: in memory, and in a note of the store.

The cluster has them too, with each sandbox (``facts``), so that a lost store costs nothing. A policy that is found
nowhere is ``offline``: what is not known is not allowed.
"""

from collections.abc import Callable
from typing import Final

import structlog

from controlplane.clock import Clock
from controlplane.egress import OFFLINE, Compiled, EgressOptions, compiled, read_compiled
from controlplane.lifecycle.record.recovering_store import RecoveringStore
from controlplane.model.spec import MAX_TTL_MS

# Longer than a sandbox may live without being extended; written anew long before.
KEPT_MS: Final = MAX_TTL_MS + 24 * 3_600_000
WRITTEN_EVERY_MS: Final = 3_600_000
# How many times a note is written that others write too.
TRIES: Final = 4


class PolicyStore:
    """Policies by digest.

    Args:
        store: has the notes.
        clock: for when a note was written last.
        options: have the installation's presets, which are known without a note.
    """

    def __init__(self, store: RecoveringStore, clock: Clock, options: EgressOptions) -> None:
        self._store = store
        self._clock = clock
        presets, dated = options.presets, options.dated
        known = [OFFLINE, *(compiled(name, policy, presets.get, dated) for name, policy in presets.items())]
        self._known: dict[str, Compiled] = {one.digest: one for one in known}
        self._own = frozenset(self._known)
        self._written_ms: dict[str, int] = {}
        self._log = structlog.get_logger("egress")

    def hold(self, policy: Compiled) -> None:
        """Keeps a policy in memory alone, as one that the cluster has told."""
        self._known.setdefault(policy.digest, policy)

    async def keep(self, policy: Compiled) -> None:
        """Keeps a policy where every replica finds it. Cost: a call to the store, once an hour for each policy.

        Raises:
            Problem: the store does not answer.
        """
        self.hold(policy)
        now_ms = self._clock.now_ms()
        if policy.digest in self._own or self._written_ms.get(policy.digest, 0) > now_ms - WRITTEN_EVERY_MS:
            return
        # Else the next look writes it.
        if await self._written(policy):
            self._written_ms[policy.digest] = now_ms

    async def get(self, digest: str) -> Compiled:
        """The policy of this digest; ``offline`` where nobody knows it any more. Cost: a read of the store, once.

        Raises:
            Problem: the store does not answer.
        """
        if (known := self._known.get(digest)) is not None:
            return known
        found = read_compiled(await self._store.note(_name(digest)))
        if found is None or found.digest != digest:
            self._log.error("a network policy is lost, its sandboxes are offline", digest=digest)
            return OFFLINE
        self.hold(found)
        return found

    async def refresh(self, in_use: Callable[[], set[str]]) -> None:
        """Writes the notes of policies in use that are old or were lost with the store, and forgets all others.

        Raises:
            Problem: the store does not answer.
        """
        digests = in_use()
        for digest in digests & self._known.keys() - self._own:
            if self._written_ms.get(digest, 0) <= self._clock.now_ms() - WRITTEN_EVERY_MS or not await self._store.note(
                _name(digest)
            ):
                self._written_ms.pop(digest, None)
                await self.keep(self._known[digest])
        for digest in self._known.keys() - in_use() - self._own - digests:
            del self._known[digest]
            self._written_ms.pop(digest, None)

    async def _written(self, policy: Compiled) -> bool:
        # Other replicas write the same text, and it makes no difference which of them has.
        return await self._store.change_note(_name(policy.digest), lambda _: policy.text, KEPT_MS, tries=TRIES)


def _name(digest: str) -> str:
    return f"egress/policy/{digest}"
