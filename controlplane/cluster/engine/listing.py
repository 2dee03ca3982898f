"""The engine's list of images."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from controlplane.cluster.engine.client import EngineClient
from controlplane.errors import Problem

LISTS: Final = 5
LIST_AGAIN_S: Final = 0.2
# Of the image, or of a part of it, by when in its list Podman comes to miss it.
_REMOVED: Final = ("image not known", "locating item named")


async def listed(client: EngineClient) -> Sequence[Mapping[str, Any]]:
    """All images of the engine, as it tells them; with those that are being made or removed, or without."""
    for _ in range(LISTS - 1):
        try:
            return await client.call("GET", "images/json") or ()
        except Problem as problem:
            # Podman fails as a whole where an image is removed while it lists them.
            if not any(words in problem.detail for words in _REMOVED):
                raise
            await asyncio.sleep(LIST_AGAIN_S)
    return await client.call("GET", "images/json") or ()
