"""What owners do with sandboxes that they have: read the record, extend it, give it to a lease, open a port."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from controlplane.errors import Problem
from controlplane.lifecycle.dependencies import Dependencies
from controlplane.lifecycle.expiry.expiry import Expiry
from controlplane.lifecycle.record import changes
from controlplane.lifecycle.record.annotations import Annotations
from controlplane.lifecycle.record.ledger import Ledger
from controlplane.lifecycle.record.recovering_store import RecoveringStore
from controlplane.model import LIVE, Lease, Sandbox, State, lease_fact

# Of one sandbox: each is a row in every gateway.
MOST_PUBLIC_PORTS: Final = 64


class OwnerCalls:
    """Calls of owners that neither begin nor end a sandbox. ``own_ports``: of each sandbox, that are the platform's."""

    def __init__(
        self,
        deps: Dependencies,
        store: RecoveringStore,
        ledger: Ledger,
        annotations: Annotations,
        expiry: Expiry,
        *,
        own_ports: frozenset[int],
    ) -> None:
        self._clock, self._metrics = deps.clock, deps.metrics
        self._store = store
        self._ledger = ledger
        self._annotations = annotations
        self._expiry = expiry
        self._own_ports = own_ports

    async def get(self, owner: str, sandbox_id: str) -> Sandbox:
        """The record, also of an ended sandbox.

        Raises:
            Problem: sandbox_not_found, also when it belongs to another owner.
        """
        sandbox = await self._store.get(sandbox_id)
        if sandbox is not None and sandbox.owner != owner:
            self._metrics.call_refused("other_owner")
        if sandbox is None or sandbox.owner != owner:
            raise Problem("sandbox_not_found", f"there is no sandbox {sandbox_id}", sandbox_id=sandbox_id)
        return sandbox

    async def find(
        self, owner: str, labels: Mapping[str, str], states: Collection[State] | None = LIVE
    ) -> Sequence[Sandbox]:
        """The owner's sandboxes with all these labels in one of these states (None: any), oldest first."""
        return await self._store.find(owner, labels, states)

    async def extend(self, owner: str, sandbox_id: str, ttl_ms: int) -> Sandbox:
        """Lets a sandbox live at least ``ttl_ms`` from now.

        Raises:
            Problem: sandbox_not_found, or why it has ended.
        """
        await self.alive(owner, sandbox_id)
        now_ms = self._clock.now_ms()
        sandbox = await self._ledger.change(sandbox_id, lambda one: changes.extended(one, now_ms + ttl_ms, now_ms))
        if sandbox is None or sandbox.end is not None:
            return await self.alive(owner, sandbox_id)
        self._expiry.activity.touch(sandbox_id)
        await self._annotations.write(sandbox_id, {"expires_at_ms": str(sandbox.expires_at_ms)})
        return sandbox

    async def give_lease(self, owner: str, sandbox_id: str, lease: Lease | None) -> Sandbox:
        """Lets a sandbox end with the client that renews this lease, or outlive it (None). Repeating is success.

        Raises:
            Problem: sandbox_not_found, or why it has ended.
        """
        await self.alive(owner, sandbox_id)
        now_ms = self._clock.now_ms()
        sandbox = await self._ledger.change(sandbox_id, lambda one: changes.leased(one, lease, now_ms))
        if sandbox is None or sandbox.end is not None:
            return await self.alive(owner, sandbox_id)
        await self._annotations.write(sandbox_id, {"lease": lease_fact(lease)})
        return sandbox

    async def renew_lease(self, owner: str, lease: Lease) -> int:
        """Says that a client is still there; see ``Leases.renew``."""
        return await self._expiry.leases.renew(owner, lease)

    async def open_port(self, owner: str, sandbox_id: str, port: int, *, public: bool) -> Sandbox:
        """Lets anyone reach a port without a token, or takes that back.

        The gateways hear of it in the moments after: one that is asked without a token before it has, waits for it.

        Args:
            owner: of the sandbox.
            sandbox_id: which sandbox.
            port: from 1 to 65535.
            public: whether anyone reaches it from now on.

        Returns:
            the sandbox after the change.

        Raises:
            Problem: permission_denied, the port is the platform's own; sandbox_not_found, why it has ended, or
                quota_exceeded: too many ports are public.
        """
        if public and port in self._own_ports:
            detail = f"port {port} is the platform's own: it is never public, and nobody reaches it as the sandbox's"
            raise Problem("permission_denied", detail, port=port)
        before = await self.alive(owner, sandbox_id)
        if public and port not in before.public_ports and len(before.public_ports) >= MOST_PUBLIC_PORTS:
            detail = f"{sandbox_id} has {MOST_PUBLIC_PORTS} public ports, no more are opened: close one of them first"
            raise Problem("quota_exceeded", detail, sandbox_id=sandbox_id, limit=MOST_PUBLIC_PORTS)
        now_ms = self._clock.now_ms()
        sandbox = await self._ledger.change(
            sandbox_id, lambda one: changes.port_opened(one, port, now_ms, public=public)
        )
        if sandbox is None or sandbox.end is not None:
            return await self.alive(owner, sandbox_id)
        await self._annotations.write(sandbox_id, {"public_ports": sandbox.ports_fact})
        return sandbox

    async def alive(self, owner: str, sandbox_id: str) -> Sandbox:
        """The record of a sandbox that has not ended.

        Raises:
            Problem: sandbox_not_found, or why it has ended.
        """
        sandbox = await self.get(owner, sandbox_id)
        if sandbox.end is not None:
            raise sandbox.end.problem(sandbox)
        return sandbox
