"""What is asked of a name server, and what counts as an answer."""

from __future__ import annotations

import asyncio
import struct

from tests.bench.cluster.names import Resolver, answered, question


def test_a_question_is_dns() -> None:
    header, name, kind = (0x1234, 0x0100, 1, 0, 0, 0), b"\x04sb-1\x07shard-0\0", (1, 1)
    expected = struct.pack(">6H", *header) + name + struct.pack(">2H", *kind)
    assert question("sb-1.shard-0", 0x1234) == expected


def test_an_answer_without_an_address_is_a_no() -> None:
    assert answered(struct.pack(">6H", 7, 0x8180, 1, 1, 0, 0)) == (7, True)
    assert answered(struct.pack(">6H", 7, 0x8183, 1, 0, 1, 0)) == (7, False)


async def test_each_answer_goes_to_who_asked() -> None:
    asked = Resolver()
    first, second = (asyncio.get_running_loop().create_future() for _ in range(2))
    asked.waiting = {1: first, 2: second}
    asked.datagram_received(struct.pack(">6H", 2, 0x8180, 1, 1, 0, 0), ("", 53))
    asked.datagram_received(struct.pack(">6H", 3, 0x8180, 1, 1, 0, 0), ("", 53))
    asked.datagram_received(struct.pack(">6H", 1, 0x8183, 1, 0, 0, 0), ("", 53))
    assert (first.result(), second.result()) == (False, True)
