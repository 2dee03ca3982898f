"""Requests and answers of a port byte by byte: what HTTP allows, and what careless servers and clients send."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator

import pytest
from yarl import URL

from rollbox import Sandbox
from rollbox.ports import Exposed
from tests.support.stack import Product

PORT = 8020
# Answers with the bytes in the path, else with the request as it came.
SERVER = """
import base64, socket, threading
def serve(connection):
    with connection, connection.makefile("rb") as sent:
        head = b"".join(iter(sent.readline, b"\\r\\n")) + b"\\r\\n"
        fields = dict(line.lower().split(b": ", 1) for line in head.splitlines()[1:-1])
        body = b""
        if b"transfer-encoding" in fields:
            while not body.endswith(b"0\\r\\n"):
                body += sent.readline()
            body += b"".join(iter(sent.readline, b"\\r\\n"))
        else:
            body = sent.read(int(fields.get(b"content-length", 0)))
        answer = base64.urlsafe_b64decode(head.split()[1].rpartition(b"/")[2])
        whole = head + body
        connection.sendall(answer or b"HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n%s" % (len(whole), whole))
with socket.create_server(("127.0.0.1", 8020)) as listening:
    while True:
        threading.Thread(target=serve, args=(listening.accept()[0],)).start()
"""


@pytest.fixture
async def port(shared: Sandbox) -> AsyncIterator[Exposed]:
    """The server's port."""
    async with await shared.spawn(["python3", "-c", SERVER]):
        await shared.ports.wait(PORT, timeout=30)
        yield await shared.ports.expose(PORT)


async def said(stack: Product, *pieces: bytes) -> bytes:
    """All that the gateway says to these bytes on one connection."""
    gateway = URL(stack.url)
    reader, writer = await asyncio.open_connection(gateway.host, gateway.port)
    writer.write(b"".join(pieces))
    async with asyncio.timeout(60):
        answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


def request(port: Exposed, method: str, *fields: str, answer: bytes = b"", last: bool = True) -> bytes:
    """A request's head by host name, for this answer of the server."""
    path = base64.urlsafe_b64encode(answer).decode()
    token, host = port.headers["X-Rollbox-Token"], URL(str(port.host_url)).authority
    ours = (f"Host: {host}", f"X-Rollbox-Token: {token}", *(("Connection: close",) if last else ()))
    return "\r\n".join((f"{method} /{path} HTTP/1.1", *ours, *fields, "", "")).encode()


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND"])
async def test_no_body_is_told_as_the_client_tells_it(stack: Product, port: Exposed, method: str) -> None:
    for fields in ((), ("Content-Length: 0",)):
        head, _, seen = (await said(stack, request(port, method, *fields))).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        if method != "HEAD":
            told = b"\r\ncontent-length: 0\r\n" in seen
            assert told == (bool(fields) or method in {"POST", "PUT", "PATCH"}), seen
        assert b"transfer-encoding" not in seen


async def test_bodies_and_trailers_reach_the_server_as_they_were_sent(stack: Product, port: Exposed) -> None:
    for fields, body, expected in (
        (("Content-Length: 3",), b"abc", b"abc"),
        (("Transfer-Encoding: chunked",), b"3\r\nabc\r\n0\r\n\r\n", b"3\r\nabc\r\n0\r\n"),
        (("Transfer-Encoding: chunked",), b"0\r\n\r\n", b"0\r\n"),
        (
            ("Transfer-Encoding: chunked", "Trailer: X-Sum", "TE: trailers"),
            b"3\r\nabc\r\n0\r\nX-Sum: 1\r\n\r\n",
            b"3\r\nabc\r\n0\r\nx-sum: 1\r\n",
        ),
    ):
        for method in ("GET", "POST", "DELETE"):
            answer = await said(stack, request(port, method, *fields), body)
            assert answer.endswith(b"\r\n\r\n" + expected), answer


async def test_answers_of_careless_servers_are_read_as_browsers_read_them(stack: Product, port: Exposed) -> None:
    for answer, expected in (
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nok", b"2\r\nok\r\n0\r\n\r\n"),
        (b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", b"ok"),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", b"ok"),
        (b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok", b"ok"),
        (b"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok", b"ok"),
        (b"HTTP/1.1 200 OK\r\nX-Long: a\r\n b\r\nContent-Length: 2\r\n\r\nok", b"ok"),
        (b"HTTP/1.1 200 OK\r\nX-Space : a\r\nContent-Length: 2\r\n\r\nok", b"ok"),
        (b"HTTP/1.1 200 OK\r\nno field\r\nX Y: z\r\nContent-Length: 2\r\n\r\nok", b"ok"),
        (
            b"HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 1\r\n\r\n",
            b"2\r\nok\r\n0\r\nx-sum: 1\r\n\r\n",
        ),
    ):
        head, _, body = (await said(stack, request(port, "GET", "TE: trailers", answer=answer))).partition(b"\r\n\r\n")
        assert (head.partition(b" ")[2][:3], body) == (b"200", expected), (answer, head)


async def test_an_answer_without_a_body_tells_no_length_that_the_server_does_not(stack: Product, port: Exposed) -> None:
    for method, answer, length in (
        ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 55\r\n\r\n", b"55"),
        ("HEAD", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", None),
        ("GET", b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n", None),
        ("GET", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 55\r\nETag: x\r\n\r\n", None),
    ):
        head, _, body = (await said(stack, request(port, method, answer=answer))).partition(b"\r\n\r\n")
        told = dict(line.split(b": ", 1) for line in head.splitlines()[1:])
        assert (told.get(b"content-length"), body) == (length, b""), (answer, head)


async def test_a_websocket_that_the_server_refuses_is_its_answer(stack: Product, port: Exposed) -> None:
    ask = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: eA==")
    refusal = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno"
    # A further request on the connection ends it.
    asked = (request(port, "GET", *ask, answer=refusal, last=False), request(port, "GET"))
    answer = await said(stack, *asked)
    assert answer.startswith(b"HTTP/1.1 403 Forbidden\r\n")
    assert b"\r\n\r\nnoHTTP/1.1 200 OK\r\n" in answer


async def test_what_cannot_be_read_of_a_client_is_the_clients_fault_and_told(stack: Product, port: Exposed) -> None:
    chunked = (request(port, "POST", "Transfer-Encoding: chunked"), b"no length\r\n")
    at_once = (request(port, "GET", last=False), request(port, "GET", last=False), b'GET /?" HTTP/1.1\r\n\r\n')
    for sent, before in ((chunked, 0), (at_once, 2), ((request(port, "POST", "Content-Length: -1"),), 0)):
        answer = await said(stack, *sent)
        assert answer.count(b"HTTP/1.1 200 OK\r\n") == before
        refusal = answer.partition(b"HTTP/1.1 400 Bad Request\r\n")[2]
        told = json.loads(refusal.partition(b"\r\n\r\n")[2])
        assert (told["code"], told["fault"]) == ("invalid_argument", "caller")
