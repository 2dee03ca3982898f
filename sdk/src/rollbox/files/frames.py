"""Framed bodies: each frame is a kind, a length and a payload.

The last frame has the digest or the problem, so that the end of a body is never confused with a broken connection.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import AsyncIterator

from rollbox.errors import Internal, StreamInterrupted
from rollbox.files.info import FileInfo
from rollbox.transport import Body, error_from_problem

ACCEPT = {"Accept": "application/vnd.rollbox.frames"}
DATA, END, PROBLEM, INFO = range(4)
_HEAD = struct.Struct(">BI")
_MOST_BYTES = 2**24


async def read(body: Body) -> AsyncIterator[tuple[int, bytes]]:
    """Iterate over the frames up to the last one.

    Yields:
        kind and payload of each, the last one included.

    Raises:
        StreamInterrupted: the answer broke off, or is damaged.
        SandboxError: the error of a problem frame.
    """
    while True:
        kind, length = _HEAD.unpack(await body.exactly(_HEAD.size))
        if length > _MOST_BYTES:
            raise StreamInterrupted(f"the gateway announced a frame of {length} bytes: the answer is damaged")
        payload = await body.exactly(length)
        if kind == PROBLEM:
            raise error_from_problem(json.loads(payload), {})
        yield kind, payload
        if kind == END:
            return


class Checked:
    """The data of a framed body, whose size and digest are compared with those in the last frame.

    Attributes:
        info: from the first frame, once it has been read; None when there is none.
        size_bytes: how much was received so far.
    """

    def __init__(self, body: Body) -> None:
        self.info: FileInfo | None = None
        self.size_bytes = 0
        self._body = body
        self._digest = hashlib.sha256()

    async def chunks(self) -> AsyncIterator[bytes]:
        """Iterate over the data; Internal when size or digest in the last frame do not match it."""
        async for kind, payload in read(self._body):
            if kind == INFO:
                self.info = FileInfo.from_json(json.loads(payload))
            elif kind == DATA and payload:
                self._digest.update(payload)
                self.size_bytes += len(payload)
                yield payload
            elif kind == END:
                self._compare(json.loads(payload))

    def _compare(self, told: dict[str, object]) -> None:
        ours = (self._digest.hexdigest(), self.size_bytes)
        if (told["sha256"], told["size_bytes"]) != ours:
            # Internal is not retried: the caller has the data already.
            raise Internal(f"received {ours[1]} bytes with digest {ours[0]}, but the sandbox sent {told}")
