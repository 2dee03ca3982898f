"""``OneMachine``: the placements of a backend that is one machine, which stops with all its sandboxes."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final

from controlplane.capacity import NOTHING, Amounts
from controlplane.cluster.protocol import Placement
from controlplane.model import SandboxSpec

MAX_STARTS: Final = 1024


class OneMachine:
    """See ``Placements``: nothing is placed, and nothing is set aside, so what is free is not known."""

    starts_per_node: int = 0
    node_drains: None = None
    room: None = None

    def starts_at_once(self) -> int:
        """See ``Placements.starts_at_once``: only the setting ``STARTS_IN_FLIGHT`` limits it."""
        return MAX_STARTS

    def placement(self, sandbox_id: str) -> Placement | None:
        """See ``Placements.placement``."""
        del sandbox_id
        return None

    async def placements(self) -> AsyncIterator[Placement]:
        """See ``Placements.placements``."""
        await asyncio.get_running_loop().create_future()
        yield Placement("", "")

    def request(self, spec: SandboxSpec) -> Amounts:
        """See ``Placements.request``."""
        del spec
        return NOTHING

    def holding(self, spec: SandboxSpec, layers: Mapping[str, int]) -> Sequence[str]:
        """See ``Placements.holding``."""
        del spec, layers
        return ()
