"""A conversion of an image: await it for its end, or iterate it for its progress."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Sequence
from typing import Any

from rollbox._problem import SandboxError
from rollbox.errors import InvalidArgument, StreamInterrupted
from rollbox.gateway import Gateway
from rollbox.image import ConversionProgress
from rollbox.retry import Resumption
from rollbox.transport import error_from_problem

# How long the connection may be away altogether.
_AWAY_S = 60.0


class Conversion:
    """Converts an image, so that nodes mount it while they fetch it.

        done = await client.convert(image)

        async for progress in client.convert(image):
            print(progress.state, progress.text)

    Nothing is sent before one of the two. A connection that breaks is made again. The conversion outlives a caller that
    leaves.
    """

    def __init__(self, gateway: Gateway, image: str, first: Sequence[str] = ()) -> None:
        """Use `Client.convert` instead."""
        if isinstance(first, str):
            raise InvalidArgument("first must be a sequence of paths, not a string")
        self._gateway = gateway
        self._wish = {"image": image, **({"first": [*first]} if first else {})}

    def __await__(self) -> Generator[Any, None, ConversionProgress]:
        return self._done().__await__()

    def __aiter__(self) -> AsyncGenerator[ConversionProgress, None]:
        return self._progress()

    async def _done(self) -> ConversionProgress:
        last = ConversionProgress("copying")
        async for progress in self._progress():
            last = progress
        return last

    async def _progress(self) -> AsyncGenerator[ConversionProgress, None]:
        resumption, body = Resumption(self._gateway.retries, _AWAY_S), json.dumps(self._wish).encode()
        told: ConversionProgress | None = None

        async def source() -> AsyncIterator[bytes]:
            yield body

        while True:
            try:
                async with self._gateway.exchange_api("POST", "images", "convert", source=source) as answer:
                    while line := await answer.line():
                        read = json.loads(line)
                        resumption.progress()
                        if (problem := read.get("problem")) is not None:
                            raise error_from_problem(problem, answer.headers)
                        if (progress := ConversionProgress.from_json(read)) != told:
                            told = progress
                            yield progress
                        if progress.state == "offered":
                            return
                raise StreamInterrupted("the answer to a conversion ended before its last word")
            except SandboxError as error:
                await resumption.after(error)
