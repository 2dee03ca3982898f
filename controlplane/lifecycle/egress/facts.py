"""Writes the policy of a sandbox to the cluster, beside its other facts, so that it survives a loss of the store."""

import asyncio

import structlog

from controlplane.errors import Problem
from controlplane.lifecycle.egress.policy_store import PolicyStore
from controlplane.lifecycle.record.annotations import Annotations
from controlplane.lifecycle.record.retry import retried_while_away
from controlplane.lifecycle.record.transition import Transition
from controlplane.model import UP, Sandbox

FACT = "egress"


class Facts:
    """Writes each revision once, at the replica that has made it; ``run`` is its loop."""

    def __init__(self, policy_store: PolicyStore, annotations: Annotations) -> None:
        self._policy_store = policy_store
        self._annotations = annotations
        self._due: dict[str, tuple[Sandbox, bool]] = {}
        self._more = asyncio.Event()
        self._log = structlog.get_logger("egress")

    def on(self, transition: Transition) -> None:
        """Remembers what has to be written; drops what is pending of a sandbox whose end has begun."""
        before, after = transition.before, transition.after
        if after.end is not None:
            self._due.pop(after.id, None)
        elif transition.here and after.egress.bound and after.state in UP and not _known(before, after):
            switched = before is not None and before.state in UP
            self._due[after.id] = after, switched
            self._more.set()

    async def run(self) -> None:
        """Writes until cancelled."""
        while True:
            self._more.clear()
            while self._due:
                await self._write(*self._due.pop(next(iter(self._due))))
            await self._more.wait()

    async def _write(self, sandbox: Sandbox, switched: bool) -> None:
        binding = sandbox.egress
        try:
            policy = await retried_while_away(lambda: self._policy_store.get(binding.digest))
        except Problem as away:
            self._log.error(
                "network policy not written to the cluster: a lost store is rebuilt without it",
                sandbox_id=sandbox.id,
                detail=away.detail,
            )
            return
        if policy.digest == binding.digest:
            # A switch before all others; that of a create with what else its start or claim has found.
            self._annotations.add(sandbox.id, {FACT: binding.fact(policy)}, first=switched)


def _known(before: Sandbox | None, after: Sandbox) -> bool:
    """Whether it was written when the record was as before."""
    return before is not None and before.state in UP and before.egress.revision == after.egress.revision
