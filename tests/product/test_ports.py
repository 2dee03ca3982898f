"""What listens in a sandbox, from outside: HTTP in all its forms, WebSocket, TCP and UDP, and who may."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import sys
from collections.abc import AsyncIterator
from io import BytesIO
from pathlib import Path

import aiohttp
import pytest
from yarl import URL

from rollbox import Process, Sandbox
from rollbox.errors import InvalidArgument, PortUnreachable
from rollbox.ports import Exposed
from tests.support.agent_calls import forged
from tests.support.stack import Product, free_port
from tests.support.waiting import until
from tests.support.wire import token_of

SERVER = (Path(__file__).parent / "server_in_sandbox.py").read_text()
HTTP, TCP, UDP = 8000, 8001, 8002


@pytest.fixture
async def server(shared: Sandbox) -> AsyncIterator[Process]:
    """The test server, on three ports of the shared sandbox."""
    await shared.files.write("/tmp/server.py", SERVER)
    async with await shared.spawn(["python3", "/tmp/server.py", str(HTTP), str(TCP), str(UDP)]) as process:
        await shared.ports.wait(HTTP, timeout=30)
        await shared.ports.wait(TCP, timeout=30)
        yield process


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.mark.core
@pytest.mark.usefixtures("server")
async def test_requests_and_answers_pass_as_they_are(shared: Sandbox, http: aiohttp.ClientSession) -> None:
    port = await shared.ports.expose(HTTP)
    assert not port.public
    url = URL(f"{port.url}a%20b/c?x=1&y=%2F", encoded=True)
    async with http.get(url, headers={**port.headers, "X-Mine": "1"}) as answer:
        seen = await answer.json()
    assert (seen["method"], seen["path"]) == ("GET", "/a%20b/c?x=1&y=%2F")
    assert seen["headers"]["x-mine"] == "1"
    assert "rollbox" not in str(seen["headers"]).lower(), "our credential reached the server"
    headers = {**port.headers, "Authorization": "Bearer the-server's-own"}
    async with http.post(port.url, headers=headers, data=b"body") as answer:
        seen = await answer.json()
    assert (seen["method"], seen["body_bytes"]) == ("POST", 4)
    assert seen["headers"]["authorization"] == "Bearer the-server's-own"
    async with http.get(f"{port.url}status/418", headers=port.headers) as answer:
        assert (answer.status, answer.headers["X-Server"]) == (418, "in the sandbox")


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.usefixtures("server")
async def test_what_the_server_is_told_agrees_with_itself(
    shared: Sandbox, http: aiohttp.ClientSession, scheme: str
) -> None:
    """As a browser's form is sent, with TLS before the gateway and without."""
    port = await shared.ports.expose(HTTP)
    page = URL(port.url).with_scheme(scheme)
    form = {"Origin": str(page.origin()), "Referer": f"{page}form?x=1", "X-Forwarded-Proto": scheme}
    async with http.post(f"{port.url}form", headers={**port.headers, **form}) as answer:
        seen = (await answer.json())["headers"]
    own = f"localhost:{HTTP}"
    assert (seen["host"], seen["origin"], seen["referer"]) == (own, f"http://{own}", f"http://{own}/form?x=1")
    assert seen["content-length"] == "0"
    assert not {"x-forwarded-host", "x-forwarded-proto"} & seen.keys()
    assert seen["x-forwarded-prefix"] == page.path.rstrip("/")


@pytest.mark.usefixtures("server")
async def test_redirects_and_cookies_as_the_client_knows_the_port(
    stack: Product, shared: Sandbox, http: aiohttp.ClientSession
) -> None:
    port = await shared.ports.expose(HTTP)
    prefix = URL(port.url).path.rstrip("/")
    for to in (
        "/c?d=1",
        f"http://localhost:{HTTP}/c?d=1",
        f"https://127.0.0.1:{HTTP}/c?d=1",
        f"//0.0.0.0:{HTTP}/c?d=1",
        f"HTTP://[::1]:{HTTP}/c?d=1",
        f"http://{shared.id}:{HTTP}/c?d=1",
        f"http://{shared.id}.some.domain:{HTTP}/c?d=1",
        f"http://app.localhost:{HTTP}/c?d=1",
        "http://localhost/c?d=1",
        "https://localhost/c?d=1",
        "//127.1/c?d=1",
        f"{prefix}/c?d=1",
    ):
        query = {"to": to, "cookie": "a=b; Domain=localhost; Path=/x; Secure"}
        ask = {**port.headers, "X-Forwarded-Proto": "https"}
        async with http.get(URL(f"{port.url}redirect").with_query(query), headers=ask, allow_redirects=False) as answer:
            assert (answer.status, answer.headers["Location"]) == (302, f"{prefix}/c?d=1"), to
            assert answer.headers["Set-Cookie"] == f"a=b; Path={prefix}/x; Secure"
        host = {**port.headers, "Host": URL(str(port.host_url)).authority}
        if to != f"{prefix}/c?d=1":
            url = URL(f"{stack.url}/redirect").with_query(query)
            async with http.get(url, headers=host, allow_redirects=False) as answer:
                assert (answer.headers["Location"], answer.headers["Set-Cookie"]) == ("/c?d=1", "a=b; Path=/x"), to


@pytest.mark.usefixtures("server")
async def test_a_long_head_passes_and_one_that_is_too_long_is_told(
    shared: Sandbox, http: aiohttp.ClientSession
) -> None:
    port = await shared.ports.expose(HTTP)
    async with http.get(f"{port.url}head/900", headers=port.headers, max_headers=1001) as answer:
        assert sum(name.lower().startswith("x-much-") for name in answer.headers) == 900
    async with http.get(f"{port.url}head/1001", headers=port.headers) as answer:
        told = await answer.json()
        assert (answer.status, told["code"], told["retry"]) == (502, "port_head_too_large", "never")


@pytest.mark.usefixtures("server")
async def test_a_preflight_for_a_private_port_needs_no_token_and_the_request_after_it_does(
    shared: Sandbox, http: aiohttp.ClientSession
) -> None:
    port = await shared.ports.expose(HTTP)
    page = {"Origin": "https://app.example.com"}
    asked = {"Access-Control-Request-Method": "PUT", "Access-Control-Request-Headers": "x-rollbox-token"}
    async with http.options(port.url, headers=page | asked) as answer:
        allowed = answer.headers
        assert (answer.status, allowed["Access-Control-Allow-Origin"]) == (204, page["Origin"])
        assert (allowed["Access-Control-Allow-Methods"], allowed["Access-Control-Allow-Headers"]) == (
            "PUT",
            "x-rollbox-token",
        )
        assert "Access-Control-Allow-Credentials" not in allowed
    assert await status(http, port.url, page) == 401
    assert await status(http, port.url, page | dict(port.headers)) == 200


@pytest.mark.usefixtures("server")
async def test_any_sign_in_a_query_reaches_the_server_or_is_told(shared: Sandbox, http: aiohttp.ClientSession) -> None:
    port = await shared.ports.expose(HTTP)
    for query in ("{a:[1]}|^`", '"a"', "<a>"):
        async with http.get(URL(f"{port.url}?{query}", encoded=True), headers=port.headers) as answer:
            told = await answer.json()
        if query.startswith("{"):
            assert told["path"] == f"/?{query}"
        else:
            assert (answer.status, told["code"]) == (400, "invalid_argument")
            assert "percent-encoded" in told["detail"]


@pytest.mark.usefixtures("server")
async def test_large_bodies_and_streams_in_both_directions(shared: Sandbox, http: aiohttp.ClientSession) -> None:
    port = await shared.ports.expose(HTTP)
    data = os.urandom(1_000_000) * 20
    async with http.post(port.url, headers=port.headers, data=BytesIO(data)) as answer:
        seen = await answer.json()
    assert (seen["body_bytes"], seen["sha256"]) == (len(data), hashlib.sha256(data).hexdigest())
    async with http.get(f"{port.url}zeros/20000000", headers=port.headers) as answer:
        assert sum([len(part) async for part in answer.content.iter_any()]) == 20_000_000
    async with http.get(f"{port.url}events", headers=port.headers) as answer:
        assert answer.content_type == "text/event-stream"
        first = await asyncio.wait_for(answer.content.readline(), 10)
        # The server waits for another request before the second: nothing held the first one back.
        async with http.get(f"{port.url}next", headers=port.headers):
            pass
        await answer.content.readline()
        assert (first, await answer.content.readline()) == (b"data: 1\n", b"data: 2\n")


async def test_much_comes_whole_or_is_known_to_be_cut_off(shared: Sandbox, http: aiohttp.ClientSession) -> None:
    """Beyond a MiB bytes take another way."""
    data = os.urandom(9_000_000)
    await shared.files.write("/tmp/much/data", data, parents=True)
    argv = ["python3", "-m", "http.server", "8010", "--bind", "127.0.0.1", "--directory", "/tmp/much"]
    async with await shared.spawn(argv):
        await shared.ports.wait(8010, timeout=30)
        port = await shared.ports.expose(8010)
        async with http.get(f"{port.url}data", headers=port.headers) as answer:
            assert hashlib.sha256(await answer.read()).digest() == hashlib.sha256(data).digest()
    serve = (
        "import socket; s = socket.create_server(('127.0.0.1', 8011))\n"
        "while True:\n"
        " c = s.accept()[0]\n"
        " if c.recv(65536): c.sendall(b'HTTP/1.1 200 OK\\r\\nContent-Length: 9000000\\r\\n\\r\\n' + bytes(6000000))\n"
        " c.close()"
    )
    async with await shared.spawn(["python3", "-c", serve]):
        await shared.ports.wait(8011, timeout=30)
        port = await shared.ports.expose(8011)
        async with http.get(f"{port.url}data", headers=port.headers) as answer:
            assert answer.status == 200
            with pytest.raises(aiohttp.ClientPayloadError):
                await answer.read()


@pytest.mark.core
@pytest.mark.usefixtures("server")
async def test_websockets_by_path(shared: Sandbox, http: aiohttp.ClientSession) -> None:
    port = await shared.ports.expose(HTTP)
    async with http.ws_connect(f"{port.url}socket", headers=port.headers) as ws:
        await ws.send_str("hällo")
        assert await ws.receive_str(timeout=10) == "hällo"
        await ws.send_bytes(b"\0" * 60_000)
        assert await ws.receive_bytes(timeout=10) == b"\0" * 60_000


@pytest.mark.usefixtures("server")
async def test_a_host_name_of_its_own(stack: Product, shared: Sandbox, http: aiohttp.ClientSession) -> None:
    """No name is looked up here: the header says it, as a browser's does."""
    port = await shared.ports.expose(HTTP)
    assert port.host_url is not None
    page = URL(port.host_url)
    assert (page.host or "").startswith(f"{HTTP}-{shared.id}.")
    host = {"Host": page.authority}
    async with http.get(f"{stack.url}/a%20b?x=1", headers={**host, **port.headers}) as answer:
        seen = await answer.json()
    assert (seen["path"], seen["headers"]["host"]) == ("/a%20b?x=1", f"localhost:{HTTP}")
    assert not {"x-forwarded-host", "x-forwarded-proto", "x-forwarded-prefix"} & seen["headers"].keys()
    assert "rollbox" not in str(seen["headers"]).lower(), "our credential reached the server"
    assert await status(http, stack.url, host) == 401
    assert await status(http, stack.url, {"Host": f"x-{page.authority}", **port.headers}) == 400
    another, _ = (await forged(stack, shared))["of another sandbox"]
    assert await status(http, stack.url, {**host, "X-Rollbox-Token": str(another)}) == 403
    token = port.headers["X-Rollbox-Token"]
    async with http.get(f"{stack.url}/a?rollbox_token={token}&x=1", headers=host, allow_redirects=False) as answer:
        assert (answer.status, answer.headers["Location"]) == (302, f"http://{page.authority}/a?x=1")
        cookie = answer.headers["Set-Cookie"].partition(";")[0]
    async with http.get(f"{stack.url}/a?x=1", headers={**host, "Cookie": f"mine=1; {cookie}"}) as answer:
        assert (await answer.json())["headers"]["cookie"] == "mine=1"
    async with http.ws_connect(f"{stack.url}/socket", headers={**host, **port.headers}) as ws:
        await ws.send_str("hällo")
        assert await ws.receive_str(timeout=10) == "hällo"


@pytest.mark.usefixtures("server")
async def test_bytes_of_a_tcp_connection_each_way_with_its_own_end(shared: Sandbox) -> None:
    data = os.urandom(3_000_000)
    async with await shared.ports.connect_tcp(TCP) as stream:

        async def send() -> None:
            await stream.write(data)
            await stream.write_eof()

        sending = asyncio.create_task(send())
        echoed = b""
        while part := await stream.read():
            echoed += part
        await sending
    assert echoed == data + b"bye"


@pytest.mark.usefixtures("server")
async def test_datagrams_stay_apart(shared: Sandbox) -> None:
    async with await shared.ports.connect_udp(UDP) as socket:
        for size in (1, 1_000, 60_000):
            await socket.send(b"x" * size)
            assert await asyncio.wait_for(socket.receive(), 10) == b"echo " + b"x" * min(size, 1_000)
        with pytest.raises(InvalidArgument):
            await socket.send(b"x" * 65_508)


async def test_a_server_that_is_not_up_yet(shared: Sandbox, http: aiohttp.ClientSession) -> None:
    port = await shared.ports.expose(8010)
    async with http.get(port.url, headers=port.headers) as answer:
        assert (answer.status, (await answer.json())["code"]) == (502, "port_unreachable")
    with pytest.raises(PortUnreachable):
        await shared.ports.wait(8010, timeout=0.3)  # speed: nobody listens, however long it takes
    with pytest.raises(PortUnreachable):
        await shared.ports.connect_tcp(8010)
    async with await shared.spawn("sleep 0.5; exec python3 -m http.server 8010"):
        await shared.ports.wait(8010, timeout=30)
        async with http.get(port.url, headers=port.headers) as answer:
            assert answer.status == 200


async def test_a_server_on_another_loopback_address(shared: Sandbox) -> None:
    async with await shared.spawn(["python3", "-m", "http.server", "--bind", "::1", "8011"]):
        await shared.ports.wait(8011, timeout=30)


@pytest.mark.core
@pytest.mark.usefixtures("server")
async def test_only_who_has_the_token_or_anyone_when_it_is_public(
    stack: Product, shared: Sandbox, http: aiohttp.ClientSession
) -> None:
    port = await shared.ports.expose(HTTP)
    assert await status(http, port.url) == 401
    assert await status(http, port.url, {"Authorization": f"Bearer {stack.api_key}"}) == 401
    another, _ = (await forged(stack, shared))["of another sandbox"]
    assert await status(http, port.url, {"X-Rollbox-Token": str(another)}) == 403
    assert await status(http, port.url, {"Authorization": f"Bearer {await token_of(stack, shared.id)}"}) == 200
    public = await shared.ports.expose(HTTP, public=True)
    assert (public.public, public.headers) == (True, {})
    await reaches(http, public, 200)
    other_port = await shared.ports.expose(TCP)
    assert await status(http, other_port.url) == 401
    await shared.ports.close(HTTP)
    await reaches(http, public, 401)


async def status(http: aiohttp.ClientSession, url: str, headers: dict[str, str] | None = None) -> int:
    async with http.get(url, headers=headers or {}) as answer:
        return answer.status


async def reaches(http: aiohttp.ClientSession, port: Exposed, expected: int) -> None:
    """Every gateway learns of a change by a push, a moment after the answer."""

    async def reached() -> bool:
        return await status(http, port.url) == expected

    await until(reached)


@pytest.mark.parametrize("port", [0, -1, 65_536, 99_999])
async def test_ports_that_are_none(stack: Product, shared: Sandbox, http: aiohttp.ClientSession, port: int) -> None:
    with pytest.raises(InvalidArgument):
        await shared.ports.expose(port)
    headers = {"X-Rollbox-Token": await token_of(stack, shared.id)}
    url = f"{stack.url}/v1/sandboxes/{shared.id}/ports/{port}/http/"
    assert await status(http, url, headers) == 400


@pytest.mark.usefixtures("server")
async def test_port_forward_on_the_command_line(stack: Product, shared: Sandbox, http: aiohttp.ClientSession) -> None:
    local = free_port()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "rollbox",
        "port-forward",
        shared.id,
        f"{local}:{HTTP}",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "ROLLBOX_URL": stack.url, "ROLLBOX_API_KEY": stack.api_key},
    )
    try:
        async with asyncio.timeout(30):
            while True:
                with contextlib.suppress(aiohttp.ClientConnectionError):
                    async with http.get(f"http://127.0.0.1:{local}/x") as answer:
                        assert (await answer.json())["path"] == "/x"
                        break
                await asyncio.sleep(0.1)
        second = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "rollbox",
            "port-forward",
            shared.id,
            f"{local}:{HTTP}",
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "ROLLBOX_URL": stack.url, "ROLLBOX_API_KEY": stack.api_key},
        )
        _, err = await second.communicate()
        assert (second.returncode, str(local) in err.decode()) == (2, True), "a local port that is in use"
    finally:
        process.terminate()
        await process.communicate()
