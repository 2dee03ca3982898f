"""Reading a shell's output up to marks, and without them."""

import asyncio
from typing import cast

from rollbox.process import OutputStream
from rollbox.shell_reader import MarkedReader

MARK = b"0123456789abcdef"


class Stream:
    """A stream that returns the pieces in its queue."""

    def __init__(self) -> None:
        self.pieces: asyncio.Queue[bytes] = asyncio.Queue()

    async def next_bytes(self) -> bytes:
        return await self.pieces.get()


async def test_an_answer_that_is_given_up_halfway_is_no_output() -> None:
    stream = Stream()
    reader = MarkedReader(cast("OutputStream", stream), 1000)
    stream.pieces.put_nowait(b"said" + MARK + b"0")
    assert await reader.until(MARK)
    asked = asyncio.ensure_future(reader.between(MARK))
    await asyncio.sleep(0)
    asked.cancel()
    await asyncio.wait([asked])
    stream.pieces.put_nowait(b"\n12\n" + MARK + b"more" + MARK[::-1])
    assert await reader.until(MARK[::-1])
    assert reader.take(MARK) == (b"saidmore", 8)
