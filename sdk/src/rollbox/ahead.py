"""Pulls the images of a batch's next samples while rollouts over earlier ones run."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from rollbox import shared
from rollbox._problem import SandboxError
from rollbox.prefetch import Prefetch
from rollbox.shared import GatewayOwner

Sample = TypeVar("Sample")
_log = logging.getLogger("rollbox")


class ImagesAhead(Generic[Sample]):
    """The samples of a batch, looked at before it is their turn.

    A pull that fails is left to the create, which tells why. Where the platform pulls nothing ahead, that is noted.

    Args:
        samples: where they come from.
        image_of: the image of a sample; None: it needs none.
        window: how many are looked at ahead.
        client: as for `Sandbox.create`.
    """

    def __init__(
        self,
        samples: Iterator[Sample],
        image_of: Callable[[Sample], str | None],
        window: int,
        client: GatewayOwner | None,
    ) -> None:
        self._samples = samples
        self._image_of = image_of
        self._window = window
        self._client = client
        self._seen: deque[Sample] = deque()
        self._known: set[str] = set()
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
            while True:
                await self._news.wait()
                self._news.clear()
                wanted, self._wanted = self._wanted, []
                report = await Prefetch(gateway, wanted)
                for (image, node), error in report.failed.items():
                    _log.debug("%s was not pulled ahead on %s: %s", image, node or "any node", error)
        except SandboxError as error:
            _log.info("images are not pulled ahead: %s", error)
        finally:
            if self._client is None:
                await shared.release(gateway)

    def _want(self, image: str | None) -> None:
        if image and image not in self._known:
            self._known.add(image)
            self._wanted.append(image)
            self._news.set()
