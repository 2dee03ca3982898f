"""What owners do with network policies: bind one at a create, read it, switch it."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from controlplane.clock import Clock
from controlplane.egress import CUSTOM, OFFLINE, UNBOUND, Binding, Compiled, EgressAttempt, EgressPolicy, compiled
from controlplane.errors import Problem
from controlplane.lifecycle.egress import Egress
from controlplane.lifecycle.egress.presets import Presets
from controlplane.lifecycle.egress.reports import Link
from controlplane.lifecycle.record import changes
from controlplane.lifecycle.record.ledger import Ledger
from controlplane.lifecycle.service.console_views import ConsoleViews
from controlplane.lifecycle.service.owner_calls import OwnerCalls
from controlplane.model import Sandbox, SandboxSpec

# Longer than a sandbox is without a replica when its own one dies.
IN_FORCE_WITHIN_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class EgressView:
    """The network policy of a sandbox.

    Attributes:
        policy: its rules.
        link: None: not known here, or there is none since it has been offline since its birth.
    """

    sandbox: Sandbox
    policy: Compiled
    link: Link | None


class EgressCalls:
    """Calls about network policies.

    Args:
        egress: None: it is not installed, and every policy but none at all is refused.
    """

    def __init__(
        self, egress: Egress | None, ledger: Ledger, owner_calls: OwnerCalls, looks: ConsoleViews, clock: Clock
    ) -> None:
        self._egress = egress
        self._looks = looks
        self._ledger = ledger
        self._owner_calls = owner_calls
        self._clock = clock

    async def bound(self, owner: str, spec: SandboxSpec) -> Binding:
        """What a create of this owner binds.

        Raises:
            Problem: unsupported, egress is not installed; not_found or invalid_argument, about the policy.
        """
        if self._egress is None:
            # Without egress that is what every sandbox has.
            if spec.egress in (None, OFFLINE.name):
                return UNBOUND
            raise _unsupported()
        policy = self._compiled(owner, self._egress.options.default if spec.egress is None else spec.egress)
        if policy.digest == OFFLINE.digest:
            return UNBOUND
        await self._egress.policy_store.keep(policy)
        return UNBOUND.switched(policy, self._clock.now_ms())

    def refused(self, owner: str, spec: SandboxSpec) -> Sequence[Problem]:
        """Why a create of this owner would be refused for its policy; empty: it would not."""
        if spec.egress is None or (self._egress is None and spec.egress == OFFLINE.name):
            return ()
        try:
            self._compiled(owner, spec.egress)
        except Problem as problem:
            return (problem,)
        return ()

    async def begun(self, sandbox: Sandbox, within_s: float = IN_FORCE_WITHIN_S) -> Sandbox:
        """Waits until the policy of a sandbox that was created a moment ago is in force; its record then.

        Raises:
            Problem: egress_unavailable, not in time; the end's cause.
        """
        if self._egress is None or sandbox.egress.in_force:
            return sandbox
        if (now := await self._egress.begun(sandbox, within_s)) is None:
            raise self._not_in_force(sandbox, within_s)
        return now

    @property
    def presets(self) -> Presets:
        """The presets.

        Raises:
            Problem: unsupported, egress is not installed.
        """
        return self._installed().presets

    async def view(self, owner: str, sandbox_id: str) -> EgressView:
        """The policy of a sandbox.

        Raises:
            Problem: unsupported, sandbox_not_found, the end's cause.
        """
        return await self._view(self._installed(), await self._owner_calls.alive(owner, sandbox_id))

    async def log(self, owner: str, sandbox_id: str, most: int) -> Sequence[EgressAttempt]:
        """The newest attempts of a sandbox, ended or not, oldest of them first.

        What it has refused itself, since it had no link, is asked of it while it runs: nobody else knows it.

        Raises:
            Problem: unsupported, sandbox_not_found; the store's.
        """
        egress = self._installed()
        sandbox = await self._owner_calls.get(owner, sandbox_id)
        told, refused = await asyncio.gather(egress.log.newest(sandbox_id, most), self._looks.refused(sandbox))
        return sorted([*refused, *told], key=lambda one: one.at_ms)[-most:]

    async def switch(
        self, owner: str, sandbox_id: str, wish: str | EgressPolicy, within_s: float = IN_FORCE_WITHIN_S
    ) -> EgressView:
        """Gives a sandbox another policy, and returns once it is in force. Repeating is success.

        Args:
            owner: of the sandbox.
            sandbox_id: which sandbox.
            wish: a preset, or a policy.
            within_s: how long to wait.

        Raises:
            Problem: unsupported, sandbox_not_found, the end's cause; not_found or invalid_argument, about the policy;
                egress_unavailable: the switch is on record, and not known to be in force within that time.
        """
        egress = self._installed()
        with egress.waiting(sandbox_id) as wait:
            before = await self._owner_calls.alive(owner, sandbox_id)
            policy = self._compiled(owner, wish)
            if policy.digest == OFFLINE.digest and not before.egress.bound:
                return await self._view(egress, before)
            await egress.policy_store.keep(policy)
            sandbox = await self._switched(before, policy)
            if (now := await egress.in_force(sandbox, within_s, wait)) is None:
                raise self._not_in_force(sandbox, within_s)
        return await self._view(egress, now)

    async def _switched(self, before: Sandbox, policy: Compiled) -> Sandbox:
        now_ms = self._clock.now_ms()
        sandbox = await self._ledger.change(before.id, lambda one: changes.egress_switched(one, policy, now_ms), before)
        if sandbox is None or sandbox.end is not None:
            sandbox = await self._owner_calls.alive(before.owner, before.id)
        return sandbox

    async def _view(self, egress: Egress, sandbox: Sandbox) -> EgressView:
        policy = await egress.policy_store.get(sandbox.egress.digest) if sandbox.egress.bound else OFFLINE
        # Where another control plane hears of its replica, what was heard here is old.
        here = egress.assignments.replica(sandbox.id) in egress.assignments.connected
        return EgressView(sandbox, policy, egress.reports.link(sandbox.id) if here else None)

    def _compiled(self, owner: str, wish: str | EgressPolicy) -> Compiled:
        presets = self._installed().presets.of(owner)
        name, policy = (wish, presets(wish)) if isinstance(wish, str) else (CUSTOM, wish)
        if policy is None:
            raise self._installed().presets.missing(owner, name)
        if policy.mode == "none":
            return OFFLINE
        try:
            return compiled(name, policy, presets, self._installed().options.dated)
        except ValueError as error:
            raise Problem("invalid_argument", f"the network policy: {error}", field="egress") from error

    def _installed(self) -> Egress:
        if self._egress is None:
            raise _unsupported()
        return self._egress

    def _not_in_force(self, sandbox: Sandbox, within_s: float) -> Problem:
        egress = self._installed()
        link = egress.reports.link(sandbox.id)
        if not egress.assignments.live:
            why = "no egress replica is connected"
        elif link is not None and not link.up:
            why = f"its egress replica has no link to it: {link.detail}"
        else:
            why = "its egress replica has not confirmed it"
        detail = f"policy {sandbox.egress.name} of {sandbox.id} is not known to be in force after {within_s:g} s: {why}"
        return Problem("egress_unavailable", detail, retry_after_ms=1000, sandbox_id=sandbox.id)


def _unsupported() -> Problem:
    detail = "egress is not installed here, so sandboxes reach no network and have no network policy"
    return Problem("unsupported", detail, field="egress")
