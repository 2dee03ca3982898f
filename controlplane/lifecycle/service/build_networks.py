"""``BuildNetworks``: sandboxes whose network the steps of a build have."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from controlplane.cluster import BuildNetwork
from controlplane.cluster.finish import finish
from controlplane.egress import PolicyOrPreset
from controlplane.errors import Problem
from controlplane.lifecycle.ending.endings import Endings
from controlplane.lifecycle.record.callers import new_caller
from controlplane.lifecycle.service.creates import Creates
from controlplane.lifecycle.tokens import SigningKey
from controlplane.model import Sandbox, SandboxSpec

# A control plane that dies leaves such a sandbox; it ends by itself so long after its build would have.
LATER_MS: Final = 300_000


class BuildNetworks:
    """A sandbox of the owner for each build that reaches something: its relay is how, its policy what.

    Args:
        creates: makes it.
        endings: ends it.
        key: signs the tokens for it.
    """

    def __init__(self, creates: Creates, endings: Endings, key: SigningKey) -> None:
        self._creates = creates
        self._endings = endings
        self._key = key

    @asynccontextmanager
    async def of(self, owner: str, image: str, egress: PolicyOrPreset, within_ms: int) -> AsyncIterator[BuildNetwork]:
        """The network of a sandbox of this policy, which ends with the block.

        Args:
            owner: of the build.
            image: one that the build reads.
            egress: what its steps may reach.
            within_ms: how long it may take.

        Raises:
            Problem: those of a create.
        """
        begun: list[Sandbox] = []
        wish = {"image": image, "egress": egress, "ttl_ms": within_ms + LATER_MS, "labels": {"build": "network"}}
        spec = SandboxSpec.model_validate(wish)
        try:
            made = await self._creates.create(owner, spec, None, by_ms=None, caller=new_caller(), begun=begun)
            sandbox = made.sandbox
            yield BuildNetwork(sandbox.id, sandbox.address or "", self._key.token(sandbox).text, _words(egress))
        finally:
            if begun:
                ended = Problem("deleted", "the build whose steps had its network is over")
                await finish(asyncio.create_task(self._end(owner, begun[-1], ended)))

    async def _end(self, owner: str, sandbox: Sandbox, problem: Problem) -> None:
        await self._endings.end_all([sandbox], problem, owner)


def _words(egress: PolicyOrPreset) -> str:
    return egress if isinstance(egress, str) else egress.model_dump_json()
