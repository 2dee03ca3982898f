"""Decodes the events of a watch from the server's byte stream."""

from collections.abc import AsyncIterator
from typing import Any, Final

import aiohttp
from pydantic_core import from_json

from controlplane.errors import Problem

MAX_EVENT_BYTES: Final = 8 << 20
# Which manager has written which field of an object: over a third of a pod, of which nothing is used. In Kubernetes'
# own kinds it is the end of the metadata. Within a JSON string both would have backslashes.
_MANAGED_FIELDS: Final = b',"managedFields":['
_THEIR_END: Final = b'}]},"spec":{'
_LEFT_OUT_OF_IT: Final = len(b"}]")


async def decoded(response: aiohttp.ClientResponse, what: str) -> AsyncIterator[dict[str, Any]]:
    """Yields one JSON object per line as they arrive.

    Args:
        response: the answer of a watch.
        what: method and path of the request, for error messages.

    Raises:
        Problem: internal, an event is longer than ``MAX_EVENT_BYTES``.
        ValueError: a line is not JSON.
    """
    rest = bytearray()
    async for chunk in response.content.iter_any():
        rest += chunk
        *lines, tail = rest.split(b"\n")
        rest = bytearray(tail)
        if len(rest) > MAX_EVENT_BYTES:
            raise Problem("internal", f"the API server sent {what} an event of more than {MAX_EVENT_BYTES} bytes")
        for line in lines:
            if line.strip():
                # A quarter less time than json's: of a start each replica is sent about ten events of 7 KB.
                event: dict[str, Any] = from_json(_without_managed_fields(line))
                yield event


def _without_managed_fields(line: bytearray) -> bytearray:
    begin = line.find(_MANAGED_FIELDS)
    end = -1 if begin < 0 else line.find(_THEIR_END, begin)
    return line if end < 0 else line[:begin] + line[end + _LEFT_OUT_OF_IT :]
