"""Registries that lie, break off, never end, or ask for credentials that are not theirs."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from controlplane.clock import SystemClock
from controlplane.errors import Problem
from controlplane.images import MAX_MANIFEST_BYTES, Credentials, Keyring, parse
from controlplane.registry import Registries, RegistryProblem
from controlplane.registry.transport import CONNECT_S, MOST_OF_ONE
from tests.support.registry import MANIFEST, digest

Serve = Callable[[web.Request], Awaitable[web.StreamResponse]]
BODY = b'{"schemaVersion": 2}'


@asynccontextmanager
async def serving(serve: Serve) -> AsyncIterator[str]:
    """Host and port of a server that answers so."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", serve)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def asking(*plain: str, keyring: Keyring = Keyring()) -> AsyncIterator[Registries]:  # noqa: B008 - frozen
    async def credentials(_: str) -> Keyring:
        return keyring

    async with Registries.open(credentials, SystemClock(), plain=plain) as registries:
        yield registries


async def outcome(serve: Serve, *, check: bool = False) -> str:
    """What comes of a look at an image of this registry: an outcome or a code."""
    async with serving(serve) as address, asking(address) as registries:
        reference = parse(f"{address}/a:1")
        with pytest.raises(Problem) as caught:
            await (registries.check(reference, digest(BODY), {"amd64"}) if check else registries.digest(reference))
    return caught.value.outcome if isinstance(caught.value, RegistryProblem) else caught.value.code


def answering(status: int, body: bytes = b"", **headers: str) -> Serve:
    async def serve(_: web.Request) -> web.Response:
        return web.Response(
            status=status, body=body, headers={name.replace("_", "-"): one for name, one in headers.items()}
        )

    return serve


@pytest.mark.parametrize(
    ("serve", "expected"),
    [
        (answering(404), "absent"),
        (answering(403), "denied"),
        (answering(401), "denied"),
        (answering(401, WWW_Authenticate='Basic realm="r"'), "denied"),
        (answering(401, WWW_Authenticate='Bearer realm="nonsense"'), "broken"),
        (answering(401, WWW_Authenticate='Bearer realm="http://elsewhere.example.com/token"'), "broken"),
        (answering(429), "limited"),
        (answering(500), "away"),
        (answering(418), "away"),
        (answering(307), "away"),
        (answering(307, Location="/v2/a/manifests/1"), "broken"),
        (answering(307, Location="http://169.254.169.254/latest/meta-data"), "away"),
        (answering(307, Location="https://169.254.169.254/latest/meta-data"), "away"),
        (answering(307, Location="https://[::1]/"), "away"),
        (answering(307, Location="file:///etc/passwd"), "broken"),
    ],
)
async def test_a_refusal_has_its_outcome(serve: Serve, expected: str) -> None:
    assert await outcome(serve) == expected


async def test_a_registry_says_when_to_ask_again() -> None:
    for header, expected in (("7", 7.0), ("999999", 3600.0), ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0), ("soon", None)):
        async with serving(answering(429, Retry_After=header)) as address, asking(address) as registries:
            with pytest.raises(RegistryProblem) as caught:
                await registries.digest(parse(f"{address}/a:1"))
        assert caught.value.pause_s == expected


async def test_content_of_another_digest_is_not_believed() -> None:
    assert await outcome(answering(200, b'{"schemaVersion": 1}', Content_Type=MANIFEST), check=True) == "broken"


async def test_schema_1_is_refused_for_what_it_is() -> None:
    kind = "application/vnd.docker.distribution.manifest.v1+prettyjws"
    assert await outcome(answering(200, b"{}", Content_Type=kind), check=True) == "unsupported"


async def test_a_manifest_without_end_is_read_to_its_limit_only() -> None:
    sent = 0

    async def endless(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse(headers={"Content-Type": MANIFEST})
        await response.prepare(request)
        while True:
            await response.write(b" " * 65_536)
            sent += 65_536

    assert await outcome(endless, check=True) == "unsupported"
    # What the kernels hold between the two is more than was read.
    assert sent < 8 * MAX_MANIFEST_BYTES


async def test_a_compressed_answer_is_not_unpacked() -> None:
    bomb = gzip.compress(b" " * (64 << 20))
    assert await outcome(answering(200, bomb, Content_Encoding="gzip"), check=True) == "broken"


async def test_an_answer_that_breaks_off_is_broken() -> None:
    async def cut(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "100", "Content-Type": MANIFEST})
        await response.prepare(request)
        await response.write(BODY)
        assert request.transport is not None
        request.transport.close()
        return response

    assert await outcome(cut, check=True) == "broken"


async def test_a_registry_that_never_answers_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controlplane.registry.transport.TOTAL_S", 0.2)

    over = asyncio.Event()

    async def silent(_: web.Request) -> web.Response:
        await over.wait()
        return web.Response()

    async with serving(silent) as address, asking(address) as registries:
        with pytest.raises(RegistryProblem, match="no answer within") as caught:
            await registries.digest(parse(f"{address}/a:1"))
        over.set()
    assert caught.value.outcome == "away"


async def test_without_a_digest_in_the_head_the_content_decides() -> None:
    async with serving(answering(200, BODY)) as address, asking(address) as registries:
        assert await registries.digest(parse(f"{address}/a:1")) == digest(BODY)


async def test_a_redirect_elsewhere_carries_no_credential() -> None:
    seen: list[str | None] = []

    async def other(request: web.Request) -> web.Response:
        seen.append(request.headers.get("Authorization"))
        return web.Response(headers={"Docker-Content-Digest": digest(BODY)})

    async with serving(other) as elsewhere:

        async def registry(request: web.Request) -> web.Response:
            if "Authorization" not in request.headers:
                return web.Response(status=401, headers={"WWW-Authenticate": 'Basic realm="r"'})
            return web.Response(status=307, headers={"Location": f"http://{elsewhere}/x"})

        async with serving(registry) as address:
            keyring = Keyring({address: Credentials("user", "secret")})
            async with asking(address, elsewhere, keyring=keyring) as registries:
                assert await registries.digest(parse(f"{address}/a:1")) == digest(BODY)
    assert seen == [None]


async def test_a_token_is_asked_for_once_and_for_one_repository() -> None:
    asked: list[tuple[str, str | None]] = []

    async def registry(request: web.Request) -> web.Response:
        if request.path == "/token":
            asked.append((request.query_string, request.headers.get("Authorization")))
            return web.json_response({"access_token": f"t{len(asked)}", "expires_in": 300})
        if request.headers.get("Authorization") not in ("Bearer t1", "Bearer t2"):
            realm = f"http://{request.host}/token"
            challenge = f'Bearer realm="{realm}",service="s",scope="repository:everything:*"'
            return web.Response(status=401, headers={"WWW-Authenticate": challenge})
        return web.Response(headers={"Docker-Content-Digest": digest(BODY)})

    async with serving(registry) as address:
        keyring = Keyring({f"{address}/private": Credentials("user", "secret")})
        async with asking(address, keyring=keyring) as registries:
            for name in ("public/a:1", "public/a:2", "private/b:1", "private/b:1"):
                assert await registries.digest(parse(f"{address}/{name}")) == digest(BODY)
    assert asked == [
        ("scope=repository:public/a:pull&service=s", None),
        ("scope=repository:private/b:pull&service=s", "Basic dXNlcjpzZWNyZXQ="),
    ]


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"token": "a\\nb"}', b'{"token": 1}', b"[" * 100_000], ids=repr)
async def test_a_token_service_that_answers_nonsense_is_broken(body: bytes) -> None:
    async def registry(request: web.Request) -> web.Response:
        if request.path == "/token":
            return web.Response(body=body)
        challenge = f'Bearer realm="http://{request.host}/token"'
        return web.Response(status=401, headers={"WWW-Authenticate": challenge})

    assert await outcome(registry) == "broken"


async def test_deep_json_and_odd_manifests_are_refused_typed() -> None:
    for body in (json.dumps({"manifests": [1]}).encode(), b"[" * 100_000):

        async def serve(_: web.Request, body: bytes = body) -> web.Response:
            return web.Response(body=body, headers={"Docker-Content-Digest": digest(body), "Content-Type": MANIFEST})

        async with serving(serve) as address, asking(address) as registries:
            reference = parse(f"{address}/a:1")
            with pytest.raises(Problem) as caught:
                await registries.check(reference, await registries.digest(reference), {"amd64"})
        assert caught.value.code == "unsupported"


async def test_questions_that_wait_for_a_place_are_not_late() -> None:
    at_once, most = 0, 0

    async def serve(_: web.Request) -> web.Response:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(CONNECT_S + 0.5)
        at_once -= 1
        return web.Response(headers={"Docker-Content-Digest": digest(BODY)})

    async with serving(serve) as address, asking(address) as registries:
        names = [parse(f"{address}/a{number}:1") for number in range(MOST_OF_ONE + 4)]
        assert set(await asyncio.gather(*map(registries.digest, names))) == {digest(BODY)}
    assert most == MOST_OF_ONE
