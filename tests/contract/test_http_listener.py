"""The HTTP listener over real sockets: whatever an app answers arrives whole."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from controlplane.api.listeners import MOST_HEAD_BYTES, serving_http
from controlplane.settings import Listen

CLOSING = b"connection: close\r\n"


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers as its path says."""

    async def slowly() -> AsyncIterator[bytes]:
        for part in (b"one", b"HTTP/1.1 200 OK\r\n\r\n", b"three"):
            yield part
            await asyncio.sleep(0.01)

    answers = {
        "/text": Response(b"text"),
        "/nothing": Response(status_code=204),
        "/stream": StreamingResponse(slowly()),
    }
    await answers[scope["path"]](scope, receive, send)


async def asked(where: Path, *requests: tuple[str, str]) -> bytes:
    """All that comes back for requests on one connection; the last one closes it."""
    reader, writer = await asyncio.open_unix_connection(where)
    for number, (method, path) in enumerate(requests, start=1):
        last = CLOSING if number == len(requests) else b""
        writer.write(f"{method} {path} HTTP/1.1\r\nhost: h\r\n".encode() + last + b"\r\n")
    async with asyncio.timeout(60):
        answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


def split(answer: bytes) -> tuple[bytes, bytes]:
    """Status line and body of one answer."""
    head, _, body = answer.partition(b"\r\n\r\n")
    return head.partition(b"\r\n")[0], body


@pytest.mark.parametrize(
    ("method", "path", "status", "body"),
    [
        ("GET", "/text", b"200 OK", b"text"),
        ("HEAD", "/text", b"200 OK", b""),
        ("GET", "/nothing", b"204 No Content", b""),
        ("GET", "/stream", b"200 OK", b"3\r\none\r\n13\r\nHTTP/1.1 200 OK\r\n\r\n\r\n5\r\nthree\r\n0\r\n\r\n"),
        ("HEAD", "/stream", b"200 OK", b""),
    ],
)
async def test_every_kind_of_answer_arrives_whole(
    tmp_path: Path, method: str, path: str, status: bytes, body: bytes
) -> None:
    listen = Listen(path=tmp_path / "s")
    async with serving_http(app, listen):
        assert split(await asked(tmp_path / "s", (method, path))) == (b"HTTP/1.1 " + status, body)


async def test_answers_on_one_connection_come_in_order(tmp_path: Path) -> None:
    async with serving_http(app, Listen(path=tmp_path / "s")):
        answer = await asked(
            tmp_path / "s", ("GET", "/nothing"), ("GET", "/text"), ("HEAD", "/text"), ("GET", "/stream")
        )
    words = [answer.index(word) for word in (b"204 No Content", b"\r\n\r\ntext", b"3\r\none", b"three")]
    assert words == sorted(words)
    assert answer.count(b"HTTP/1.1 ") == 5  # one of them is in the body


@pytest.mark.parametrize("head", [b"x: " + b"y" * MOST_HEAD_BYTES, b"x: y\r\n" * (MOST_HEAD_BYTES // 6)])
async def test_a_head_without_end_is_refused(tmp_path: Path, head: bytes) -> None:
    async with serving_http(app, Listen(path=tmp_path / "s")):
        reader, writer = await asyncio.open_unix_connection(tmp_path / "s")
        writer.write(b"GET /text HTTP/1.1\r\nhost: h\r\n" + head)
        async with asyncio.timeout(60):
            assert b" 400 " in (await reader.read()).partition(b"\r\n")[0]
        writer.close()
        await writer.wait_closed()
