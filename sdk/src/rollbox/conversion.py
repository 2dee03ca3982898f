"""A conversion of an image: await it for its end, or iterate it for its progress."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Sequence
from typing import Any, TypedDict

from rollbox._problem import SandboxError
from rollbox.errors import InvalidArgument, StreamInterrupted
from rollbox.gateway import Gateway
from rollbox.image import ConversionProgress
from rollbox.reading import Reading
from rollbox.request import milliseconds
from rollbox.retry import Resumption
from rollbox.transport import error_from_problem

# How long the connection may be away altogether.
_AWAY_S = 60.0
# How long a recorded command may run.
RECORD_S = 600.0


class ConvertOptions(TypedDict, total=False):
    """What comes first in the converted image.

    Attributes:
        first: paths of files that nodes fetch before all others, in this order, in one piece before a sandbox starts.
        record: has these found: a command line, such as the test suite, which runs in a sandbox of yours by its shell.
            How it ends is told (`run_failed`) and changes nothing, unless it is not over in time.
        record_timeout: how long it may run, in seconds (600).
    """

    first: Sequence[str]
    record: str
    record_timeout: float


class Conversion:
    """Converts an image, so that nodes mount it while they fetch it.

        done = await client.convert(image)

        async for progress in client.convert(image):
            print(progress.state, progress.text)

    Nothing is sent before one of the two. A connection that breaks is made again. The conversion outlives a caller that
    leaves.
    """

    def __init__(self, gateway: Gateway, image: str, options: ConvertOptions) -> None:
        """Use `Client.convert` instead."""
        first, record = options.get("first", ()), options.get("record")
        if isinstance(first, str):
            raise InvalidArgument("first must be a sequence of paths, not a string")
        if first and record is not None:
            raise InvalidArgument("first and record exclude each other")
        self._gateway = gateway
        self._wish: dict[str, Any] = {"image": image}
        if first:
            self._wish["first"] = [*first]
        if record is not None:
            timeout_s = options.get("record_timeout", RECORD_S)
            self._wish |= {"record": record, "record_timeout_ms": milliseconds("record_timeout", timeout_s)}

    def __await__(self) -> Generator[Any, None, ConversionProgress]:
        return self._done().__await__()

    def __aiter__(self) -> Reading[ConversionProgress]:
        return Reading(self._progress())

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
