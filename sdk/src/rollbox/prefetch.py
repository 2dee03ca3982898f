"""A prefetch: await it for its report, or iterate it for its progress."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterable
from contextlib import aclosing
from typing import Any

from rollbox import image
from rollbox._problem import SandboxError
from rollbox.errors import StreamInterrupted
from rollbox.gateway import Gateway
from rollbox.image import PrefetchProgress, PrefetchReport
from rollbox.reading import Reading
from rollbox.request import count
from rollbox.retry import Resumption
from rollbox.transport import error_from_problem

# How long the connection may be away altogether.
_AWAY_S = 60.0
# Of one request.
_MOST_IMAGES = 1024


class Prefetch:
    """Pulls images to the nodes of the platform before sandboxes need them.

        report = await client.prefetch(images)

        async for progress in client.prefetch(images):
            print(progress.image, progress.node, progress.state)

    Nothing is sent before one of the two. A connection that breaks is made again. Leaving the iteration ends the wait;
    what a node has begun it may finish.
    """

    def __init__(self, gateway: Gateway, images: str | Iterable[str], nodes: int | None = None) -> None:
        """Use `Client.prefetch` instead."""
        self._gateway = gateway
        self._images = image.names(images)
        self._wish = {} if nodes is None else {"nodes": count("nodes", nodes)}
        self.report = PrefetchReport()
        """What is final so far."""

    def __await__(self) -> Generator[Any, None, PrefetchReport]:
        return self._reported().__await__()

    def __aiter__(self) -> Reading[PrefetchProgress]:
        return Reading(self._progress())

    async def _reported(self) -> PrefetchReport:
        async for _ in self._progress():
            pass
        return self.report

    async def _progress(self) -> AsyncGenerator[PrefetchProgress, None]:
        for begin in range(0, len(self._images), _MOST_IMAGES):
            async with aclosing(self._of(self._images[begin : begin + _MOST_IMAGES])) as told:
                async for progress in told:
                    if self.report.add(progress):
                        yield progress

    async def _of(self, images: Iterable[str]) -> AsyncGenerator[PrefetchProgress, None]:
        resumption, body = (
            Resumption(self._gateway.retries, _AWAY_S),
            json.dumps({"images": list(images), **self._wish}).encode(),
        )

        async def source() -> AsyncIterator[bytes]:
            yield body

        while True:
            try:
                async with self._gateway.exchange_api("POST", "images", "prefetch", source=source) as answer:
                    while line := await answer.line():
                        told = json.loads(line)
                        if "summary" in told:
                            return
                        resumption.progress()
                        problem = told.get("problem")
                        error = None if problem is None else error_from_problem(problem, answer.headers)
                        if error is not None and not told.get("image"):
                            raise error  # of the whole prefetch
                        yield PrefetchProgress.from_json(told, error)
                raise StreamInterrupted("the answer to a prefetch ended before its summary")
            except SandboxError as error:
                await resumption.after(error)
