"""What is told of an answer that is none of HTTP: why, and no credential."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from yarl import URL

from rollbox.errors import InvalidArgument, SandboxError
from rollbox.transport import Transport

KEY = "rbx_a_key_that_no_message_has"


@asynccontextmanager
async def answering(raw: bytes) -> AsyncIterator[str]:
    """A server that answers every request with these bytes."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(raw)
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def told(raw: bytes, call: str) -> SandboxError:
    """The error of a call whose answer begins with these bytes."""
    async with answering(raw) as url:
        transport = Transport(url)
        try:
            if call == "send":
                await transport.send("GET", URL(url), KEY)
            elif call == "websocket":
                await transport.websocket(URL(url), KEY)
            else:
                async with transport.exchange("GET", URL(url), KEY) as body:
                    await body.everything()
        except SandboxError as error:
            return error
        finally:
            await transport.aclose()
    raise AssertionError("it was answered")


@pytest.mark.parametrize("call", ["send", "exchange", "websocket"])
@pytest.mark.parametrize(
    "raw",
    [
        b"no answer of HTTP\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno header\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nfew",
    ],
)
async def test_no_message_has_the_key(raw: bytes, call: str) -> None:
    error = await told(raw, call)
    texts = [str(error), error.detail, str(error.__cause__)]
    assert [text for text in texts if KEY in text] == []


@pytest.mark.parametrize("call", ["send", "exchange", "websocket"])
async def test_a_port_that_speaks_tls_alone_is_told_and_not_tried_again(call: str) -> None:
    error = await told(b"\x15\x03\x03\x00\x02\x02\x32", call)
    assert isinstance(error, InvalidArgument)
    assert "speaks TLS alone" in str(error)
    assert "https://" in error.hint
