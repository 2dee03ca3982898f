"""Pulls the images of a batch's next samples while rollouts over earlier ones run."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from rollbox import shared
from rollbox._problem import SandboxError
from rollbox.gateway import Gateway
from rollbox.prefetch import Prefetch
from rollbox.shared import GatewayOwner

Sample = TypeVar("Sample")
# Each asks for all that came into view since the one before it.
_CALLS_AT_ONCE = 4
# Images that are not asked for again when they come again; nodes may have given up one that was asked for long ago.
_MOST_KNOWN = 1024
_log = logging.getLogger("rollbox")


class ImagePrefetcher(Generic[Sample]):
    """The samples of a batch, looked at before it is their turn.

    A pull that fails is left to the create, which tells why. Where the platform pulls nothing ahead, that is noted.
    A pull that takes long holds up no others: a few go on beside it.

    Args:
        samples: where they come from.
        image_of: the image of a sample; None: it needs none.
        window: how many are looked at ahead.
        nodes: as for `Client.prefetch`.
        client: as for `Sandbox.create`.
    """

    def __init__(
        self,
        samples: Iterator[Sample],
        image_of: Callable[[Sample], str | None],
        window: int,
        nodes: int | None,
        client: GatewayOwner | None,
    ) -> None:
        self._samples = samples
        self._image_of = image_of
        self._window = window
        self._nodes = nodes
        self._client = client
        self._seen: deque[Sample] = deque()
        self._known: OrderedDict[str, None] = OrderedDict()
        self._most_known = max(_MOST_KNOWN, window)
        self._wanted: list[str] = []
        self._news = asyncio.Event()

    def __iter__(self) -> Iterator[Sample]:
        return self

    def __next__(self) -> Sample:
        while len(self._seen) <= self._window:
            try:
                sample = next(self._samples)
            except StopIteration:
                break
            self._seen.append(sample)
            self._want(self._image_of(sample))
        if not self._seen:
            raise StopIteration
        return self._seen.popleft()

    async def pull(self) -> None:
        """Pull what comes into view, until this is cancelled; returns early where nothing is pulled ahead."""
        gateway = await shared.gateway_of(self._client)
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(_CALLS_AT_ONCE):
                    group.create_task(self._calls(gateway))
        except* SandboxError as failures:
            _log.info("images are not pulled ahead: %s", failures.exceptions[0])
        finally:
            if self._client is None:
                await shared.release(gateway)

    async def _calls(self, gateway: Gateway) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            # All calls that wait are woken; the first takes everything.
            wanted, self._wanted = self._wanted, []
            if not wanted:
                continue
            report = await Prefetch(gateway, wanted, self._nodes)
            for (image, node), error in report.failed.items():
                _log.debug("%s was not pulled ahead on %s: %s", image, node or "any node", error)

    def _want(self, image: str | None) -> None:
        if not image:
            return
        if image not in self._known:
            self._wanted.append(image)
            self._news.set()
        self._known[image] = None
        self._known.move_to_end(image)
        if len(self._known) > self._most_known:
            self._known.popitem(last=False)
