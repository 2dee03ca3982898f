"""Waiting until the start of a sandbox is over, wherever it runs."""

import asyncio

from controlplane.errors import Problem
from controlplane.lifecycle.record.ledger import Ledger
from controlplane.lifecycle.record.transition import Transition
from controlplane.model import Sandbox


class Settlements:
    """Wakes callers when a start settles: the sandbox is up, or has ended."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._unsettled: dict[str, asyncio.Future[Sandbox | None]] = {}  # None: no record any more
        self._awaited: set[str] = set()  # admitted, and a caller waits here until the start is over
        self._unconfirmed: set[str] = set()  # of these, started elsewhere when the store was lost
        self._leaving: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def expect(self, sandbox_id: str) -> asyncio.Future[Sandbox | None]:
        """Lets ``settled`` wait for this sandbox, from its admission on."""
        if sandbox_id not in self._unsettled:
            self._unsettled[sandbox_id] = asyncio.get_running_loop().create_future()
        return self._unsettled[sandbox_id]

    def unexpect(self, sandbox_id: str) -> None:
        """Takes ``expect`` back: the sandbox was not admitted."""
        self._unsettled.pop(sandbox_id, None)

    def leave(self) -> None:
        """Tells the callers that wait that their sandboxes will get ready elsewhere."""
        if not self._leaving.done():
            self._leaving.set_result(None)

    async def settled(self, sandbox: Sandbox) -> Sandbox:
        """The record once the start is over, for better or worse; at once when it already is.

        A cancelled call leaves the start and the other callers alone.

        Raises:
            Problem: draining, this replica leaves before the start is over; sandbox_not_found, the record has gone.
        """
        known = sandbox.id in self._unsettled
        future = self.expect(sandbox.id)
        self._awaited.add(sandbox.id)
        future.add_done_callback(lambda _: self._awaited.discard(sandbox.id))
        if not known:
            # Another replica brings it up, or it has settled since the caller got its record.
            await self._check(sandbox.id)
        await asyncio.wait((future, self._leaving), return_when=asyncio.FIRST_COMPLETED)
        if future.done():
            if (after := future.result()) is None:
                raise Problem("sandbox_not_found", f"there is no sandbox {sandbox.id} any more")
            return after
        raise Problem("draining", f"{sandbox.id} gets ready elsewhere: ask again with its key", retry_after_ms=200)

    async def reread(self) -> None:
        """Reads all that callers wait for: changes may have been missed."""
        for sandbox_id in [*self._unsettled]:
            await self._ledger.refresh(sandbox_id)

    def store_lost(self) -> None:
        """The store has forgotten the starts of other replicas, which may be gone: ``reread_unconfirmed`` finds out."""
        self._unconfirmed |= {sandbox_id for sandbox_id in self._awaited if self._ledger.held(sandbox_id) is None}

    async def reread_unconfirmed(self) -> None:
        """Ends the waits for sandboxes that no replica has put on record again."""
        for sandbox_id in [*self._unconfirmed]:
            await self._check(sandbox_id)
            self._unconfirmed.discard(sandbox_id)

    async def _check(self, sandbox_id: str) -> None:
        if (
            await self._ledger.refresh(sandbox_id) is None
            and (future := self._unsettled.pop(sandbox_id, None)) is not None
        ):
            # Not as an exception, which asyncio would log where all callers have gone away meanwhile.
            future.set_result(None)

    def on(self, transition: Transition) -> None:
        """Wakes the callers that wait for the start which is over."""
        # By the state and not by the effect: a transition that was missed here is made up for by the next one.
        if transition.after.state.unready:
            return
        future = self._unsettled.pop(transition.after.id, None)
        if future is not None and not future.done():
            future.set_result(transition.after)
