"""The engine's list of images."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from controlplane.cluster.engine.client import REMOVED, EngineClient
from controlplane.errors import Problem

# A prune that removes hundreds takes seconds.
LISTS: Final = 10
LIST_AGAIN_S: Final = 0.2
MOST_PAUSE_S: Final = 1.0


async def listed(
    client: EngineClient, query: Mapping[str, str | int | bool] | None = None
) -> Sequence[Mapping[str, Any]]:
    """All images of the engine, as it tells them; with those that are being made or removed, or without.

    Args:
        client: of the engine.
        query: which ones; None: those that it shows by itself.

    Raises:
        Problem: the engine's.
    """
    for number in range(1, LISTS):
        try:
            return await client.call("GET", "images/json", query) or ()
        except Problem as problem:
            # Podman fails as a whole where an image is removed while it lists them.
            if not any(words in problem.detail for words in REMOVED):
                raise
            await asyncio.sleep(min(number * LIST_AGAIN_S, MOST_PAUSE_S))
    return await client.call("GET", "images/json", query) or ()
