"""A short call to a sidecar without a channel: against a real gRPC server, and against bytes that are none of its."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from grpc import aio

from controlplane.cluster import brief
from controlplane.wire import agent_pb2, agent_pb2_grpc
from tests.contract.test_controlplane_wire import Sidecar
from tests.support.silent_port import silent_port

PATH = "/rollbox.agent.v1.Agent/Configure"
# As tonic answers: a head, a message, and trailers in Huffman's code.
_HEAD = b"\0\0\1\1\4\0\0\0\1\x88"
_STATUS = b"\x40\x88\x9a\xca\xc8\xb2\x12\x34\xda\x8f"


def data(message: bytes) -> bytes:
    body = b"\0" + len(message).to_bytes(4, "big") + message
    return len(body).to_bytes(3, "big") + b"\0\0\0\0\0\1" + body


def trailers(block: bytes) -> bytes:
    return len(block).to_bytes(3, "big") + b"\1\5\0\0\0\1" + block


GOOD = _STATUS + b"\x81\x07"
FAILED = _STATUS + b"\x82\x08\x5f"


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that stands still for a moment is no answer."""
    monkeypatch.setattr(brief, "WITHIN_S", 60.0)


@asynccontextmanager
async def answering(answer: bytes) -> AsyncIterator[str]:
    """A server that says this to whoever comes, and hangs up."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"application/grpc")
        writer.write(answer)
        await writer.drain()
        writer.write_eof()
        await reader.read()
        writer.close()

    async with (
        asyncio.TaskGroup() as group,
        await asyncio.start_server(lambda *both: group.create_task(serve(*both)), "127.0.0.1", 0) as server,
    ):
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.fixture(params=["tcp", "unix"])
async def sidecar(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[Sidecar, str]]:
    server, served = aio.server(), Sidecar()
    agent_pb2_grpc.add_AgentServicer_to_server(served, server)  # type: ignore[no-untyped-call]
    place = f"unix:{tmp_path / 's'}" if request.param == "unix" else "127.0.0.1:0"
    port = server.add_insecure_port(place)
    await server.start()
    yield served, place.replace(":0", f":{port}")
    await server.stop(grace=None)


@pytest.mark.parametrize("size", [1, 50, 200, 15_000])
async def test_a_success_is_known(sidecar: tuple[Sidecar, str], size: int) -> None:
    served, place = sidecar
    request = agent_pb2.ConfigureRequest(env={"A": "x" * size}, cwd="/w")
    assert await brief.asked(place, PATH, "good", request.SerializeToString()) == b""
    assert served.configured == request


async def test_what_begins_with_a_colon_comes_first() -> None:
    heads: asyncio.Queue[bytes] = asyncio.Queue()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await heads.put(await reader.readuntil(b"Bearer good"))
        writer.close()

    async with (
        asyncio.TaskGroup() as group,
        await asyncio.start_server(lambda *both: group.create_task(serve(*both)), "127.0.0.1", 0) as server,
    ):
        place = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        assert await brief.asked(place, PATH, "good", b"") is None
    # Method, scheme, authority and path by their numbers, then the rest: strict servers refuse another order.
    head = (await heads.get()).partition(b"\0\0\0\1")[2]
    assert head.startswith(b"\x83\x86\x01\x07sidecar\x04" + bytes((len(PATH),)) + PATH.encode() + b"\x0f\x10")


async def test_all_else_is_left_to_the_full_client(sidecar: tuple[Sidecar, str]) -> None:
    _, place = sidecar
    assert await brief.asked(place, PATH, "bad", b"") is None, "refused"
    assert await brief.asked(place, PATH, "b" * 300, b"") is None, "refused, with a long token"
    assert await brief.asked(place, PATH + "X", "good", b"") is None, "no such call"
    assert await brief.asked(place, PATH, "good", bytes(brief.MOST_BYTES + 1)) is None, "too much"
    assert await brief.asked("unix:/nowhere", PATH, "good", b"") is None, "no socket"
    assert await brief.asked("dns:x", PATH, "good", b"") is None, "no host and port"
    with silent_port() as port:
        assert await brief.asked(f"127.0.0.1:{port}", PATH, "good", b"") is None, "nobody there"


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (_HEAD + data(b"m") + trailers(GOOD), b"m"),
        (_HEAD + data(b"") + trailers(GOOD), b""),
        (_HEAD + data(b"m") + trailers(FAILED), None),
        (trailers(b"\x88" + FAILED), None),
        (_HEAD + trailers(GOOD), None),
        (_HEAD + data(b"m")[:-1], None),
        (_HEAD + data(b"m"), None),
        (b"", None),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", None),
        (b"\xff\xff\xff\0\0\0\0\0\1", None),
        (b"\0\0\4\3\0\0\0\0\1\0\0\0\2", None),
    ],
    ids=[
        *("whole", "empty", "failed", "no message", "no head", "cut", "no status", "nothing"),
        *("http1", "too long", "reset"),
    ],
)
async def test_only_a_whole_answer_with_its_status_is_a_success(answer: bytes, expected: bytes | None) -> None:
    async with answering(answer) as place:
        assert await brief.asked(place, PATH, "good", b"") == expected
