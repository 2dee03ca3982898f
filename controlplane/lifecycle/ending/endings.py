"""Ending sandboxes for their owners: many together, and waiting until the cluster has confirmed it."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from controlplane.errors import Problem
from controlplane.lifecycle.ending.reclaim import Reclaimer
from controlplane.lifecycle.record.ledger import Ledger
from controlplane.lifecycle.record.recovering_store import RecoveringStore
from controlplane.model import Sandbox, State

# How many ends of one call are stored side by side.
TOGETHER: Final = 64


@dataclass(frozen=True, slots=True)
class Deleted:
    """What a delete of many came to: ids whose end is on record, and those whose confirmation did not come in time."""

    ids: Sequence[str]
    failed: Mapping[str, Problem]


class Endings:
    """Ends sandboxes, and waits for the reclaimer where the caller wants it."""

    def __init__(self, store: RecoveringStore, ledger: Ledger, reclaimer: Reclaimer) -> None:
        self._store = store
        self._ledger = ledger
        self._reclaimer = reclaimer

    async def end_all(self, sandboxes: Sequence[Sandbox], problem: Problem, by: str, *, wait_s: float = 0.0) -> Deleted:
        """Ends many together.

        Args:
            sandboxes: which; those that have ended already stay as they are.
            problem: the cause of the end, for all of them.
            by: what ends them, for the records.
            wait_s: seconds to wait for the cluster's confirmation that nothing of them runs; 0: not at all.

        Returns:
            their ids; with a wait, those without a confirmation in time are ``failed``, each with its reason.

        Raises:
            Problem: the store did not take an end; some of the others may have been stored.

        Cost: a step of the store for each, ``TOGETHER`` at a time.
        """
        # All ends first: quota and routes of the last one do not wait for the cluster to take the first one off.
        for at in range(0, len(sandboxes), TOGETHER):
            some = (self._ledger.end(one.id, problem, by, known=one) for one in sandboxes[at : at + TOGETHER])
            for failure in await asyncio.gather(*some, return_exceptions=True):
                if isinstance(failure, BaseException):
                    raise failure
        if not wait_s:
            return Deleted([sandbox.id for sandbox in sandboxes], {})
        confirmations = await asyncio.gather(
            *(self.confirmed(sandbox, wait_s) for sandbox in sandboxes), return_exceptions=True
        )
        failed: dict[str, Problem] = {}
        for sandbox, confirmation in zip(sandboxes, confirmations, strict=True):
            if isinstance(confirmation, Problem):
                failed[sandbox.id] = confirmation
            elif isinstance(confirmation, BaseException):
                raise confirmation
        return Deleted([sandbox.id for sandbox in sandboxes if sandbox.id not in failed], failed)

    async def confirmed(self, sandbox: Sandbox, within_s: float) -> Sandbox | None:
        """Returns when the cluster has confirmed the end, whichever replica began it.

        Returns:
            The record from then on, if this replica has just stored it.

        Raises:
            Problem: upstream_timeout, not within ``within_s``; the reclamation goes on, and asking again is safe.
        """
        if self._store.shared and not self._reclaimer.has(sandbox.id):
            now = await self._store.get(sandbox.id)
            if now is not None and now.state is State.ENDING:
                self._ledger.publish(now)
                self._reclaimer.begin(sandbox.id)
        return await self._reclaimer.confirmed(sandbox, within_s)
