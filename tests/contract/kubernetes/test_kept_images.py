"""The images that were made of sandboxes, as a real registry lists and removes them."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from controlplane.cluster.kubernetes.node_agents.kept import KeptImages
from controlplane.cluster.kubernetes.node_agents.registry_api import RegistryApi
from controlplane.cluster.kubernetes.node_agents.tokens import ISSUER, SERVICE, minted, signed
from controlplane.errors import Problem
from controlplane.images import OWN_BYTES, PrivateRegistry
from controlplane.settings import PushSettings
from tests.support.authority import Authority
from tests.support.registry import CONFIG, HTPASSWD, LAYER, MANIFEST, digest, registry_server
from tests.support.stack import free_port

HOST = "registry.internal:5443"
CREATED = "2023-11-14T22:13:20.123456789Z"
CREATED_MS = 1_700_000_000_123


class Registry:
    """A registry with an account and a certificate, as the chart's is, or one that takes tokens alone."""

    def __init__(
        self, address: str, http: aiohttp.ClientSession, push: PushSettings, shown: Callable[[str], str]
    ) -> None:
        self.address = address
        self.http = http
        self.push = push
        self.shown = shown
        self.tokens: list[str] = []

    async def image(self, repository: str, layers: Sequence[bytes], *tags: str, own_bytes: int | None = None) -> str:
        """Pushes an image with these tags, and that of its own, which may say what its own layers take; its digest."""
        said = {"created": CREATED, "config": {"Cmd": ["run"]}, "rootfs": {"diff_ids": [digest(one) for one in layers]}}
        config = json.dumps(said).encode()
        account = {"Authorization": self.shown(repository)}
        for blob in (config, *layers):
            begun = await self.http.post(f"https://{self.address}/v2/{repository}/blobs/uploads/", headers=account)
            end = f"{begun.headers['Location']}&digest={digest(blob)}"
            assert (await self.http.put(end, data=blob, headers=account)).status == 201
        parts = [{"mediaType": LAYER, "digest": digest(one), "size": len(one)} for one in layers]
        about = {"mediaType": CONFIG, "digest": digest(config), "size": len(config)}
        body: dict[str, Any] = {"schemaVersion": 2, "mediaType": MANIFEST, "config": about, "layers": parts}
        if own_bytes is not None:
            body["annotations"] = {OWN_BYTES: str(own_bytes)}
        manifest = json.dumps(body).encode()
        for tag in (f"id-{digest(manifest).partition(':')[2]}", *tags):
            url = f"https://{self.address}/v2/{repository}/manifests/{tag}"
            assert (
                await self.http.put(url, data=manifest, headers={"Content-Type": MANIFEST, **account})
            ).status == 201
        return digest(manifest)


BASIC = aiohttp.encode_basic_auth("user", "password")


@asynccontextmanager
async def served(
    tmp_path: Path, auth: Mapping[str, Any], shown: Callable[[str], str], **more: Mapping[str, Any]
) -> AsyncIterator[Registry]:
    tls = tmp_path / "tls"
    (tmp_path / "account").write_text("user:password")
    at = f"127.0.0.1:{free_port('127.0.0.1')}"
    address = f"localhost:{at.rpartition(':')[2]}"
    trusted = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=tls / "ca.crt"))
    by_tls = {"addr": at, "tls": {"certificate": str(tls / "tls.crt"), "key": str(tls / "tls.key")}}
    with registry_server(tmp_path, at, http=by_tls, auth=auth, **more):
        async with aiohttp.ClientSession(connector=trusted) as http:
            push = PushSettings(address, tmp_path / "account", tls / "ca.crt")
            yield Registry(address, http, push, shown)


@asynccontextmanager
async def by_account(tmp_path: Path, **more: Mapping[str, Any]) -> AsyncIterator[Registry]:
    Authority().write(tmp_path / "tls", "localhost")
    (tmp_path / "htpasswd").write_text(HTPASSWD)
    auth = {"htpasswd": {"realm": "r", "path": str(tmp_path / "htpasswd")}}
    async with served(tmp_path, auth, lambda _: BASIC, **more) as registry:
        yield registry


@asynccontextmanager
async def by_token(tmp_path: Path, *, lives_s: int = 300) -> AsyncIterator[Registry]:
    """A registry that takes no account, with a service that gives tokens for one."""
    tls, keys = Authority().write(tmp_path / "tls", "localhost"), Authority().write(tmp_path / "keys", "tokens")
    asked: list[str] = []

    async def give(request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != BASIC or request.query["service"] != SERVICE:
            return web.Response(status=401)
        asked.append(request.query["scope"])
        kind, name, actions = request.query["scope"].split(":")
        access = [{"type": kind, "name": name, "actions": actions.split(",")}]
        return web.json_response({"token": signed(keys, access, int(time.time())), "expires_in": lives_s})

    def pushing(repository: str) -> str:
        return f"Bearer {minted(keys, {repository: ('pull', 'push')}, int(time.time()))}"

    app = web.Application()
    app.router.add_get("/token", give)
    own = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    own.load_cert_chain(tls / "tls.crt", tls / "tls.key")
    server = TestServer(app, scheme="https", host="localhost")
    await server.start_server(ssl=own)
    try:
        realm = {"realm": str(server.make_url("/token")), "service": SERVICE, "issuer": ISSUER}
        auth = {"token": {**realm, "rootcertbundle": str(keys / "tls.crt")}}
        async with served(tmp_path, auth, pushing) as registry:
            registry.tokens = asked
            yield registry
    finally:
        await server.close()


@pytest.fixture(params=[by_account, by_token], ids=["account", "tokens"])
async def registry(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Registry]:
    async with request.param(tmp_path) as made:
        yield made


async def test_an_owners_images_with_what_they_are_built_on(registry: Registry) -> None:
    kept = KeptImages(PrivateRegistry(HOST), registry.push)
    assert list(await kept.below(f"{HOST}/commits/alice")) == []
    first = await registry.image("commits/alice/repo", [b"base", b"first"], "v1")
    moved = await registry.image("commits/alice/repo", [b"base", b"moved"], "v2")
    second = await registry.image("commits/alice/other", [b"base", b"first", b"second!"], "latest", "same")
    current = await registry.image("commits/alice/repo", [b"base", b"current"], "v2")
    for other in ("commits/alice-b/repo", "commits/alicia/repo", "commits/a/repo", "mirror/commits/alice/repo"):
        await registry.image(other, [b"base", b"theirs"], "v1")
    found = {one.digest: one for one in await kept.below(f"{HOST}/commits/alice")}
    assert set(found) == {first, moved, second, current}
    assert {one.created_at_ms for one in found.values()} == {CREATED_MS}
    assert [found[one].tags for one in (first, moved, current, second)] == [("v1",), (), ("v2",), ("latest", "same")]
    assert found[second].name == f"{HOST}/commits/alice/other"
    assert (found[second].size_bytes, found[second].built_on, found[first].built_on) == (7, (first,), ())
    await kept.remove(found[first])
    await kept.remove(found[first])
    left = {one.digest: one for one in await kept.below(f"{HOST}/commits/alice")}
    assert set(left) == {moved, second, current}
    assert left[second].built_on == ()


async def test_an_image_with_two_equal_layers_is_not_built_on_itself(registry: Registry) -> None:
    kept = KeptImages(PrivateRegistry(HOST), registry.push)
    empty = await registry.image("commits/alice/repo", [b"base", b"nothing"], "v1")
    again = await registry.image("commits/alice/repo", [b"base", b"nothing", b"nothing"], "v2")
    other = await registry.image("commits/alice/repo", [b"other", b"nothing"], "v3")
    found = {one.digest: one.built_on for one in await kept.below(f"{HOST}/commits/alice")}
    assert found == {empty: (), again: (empty,), other: ()}


async def test_nothing_is_built_on_an_image_that_only_says_something_else_of_its_base(registry: Registry) -> None:
    kept = KeptImages(PrivateRegistry(HOST), registry.push)
    says = await registry.image("commits/alice/repo", [b"base"], "v1", own_bytes=0)
    wrote = await registry.image("commits/alice/repo", [b"base", b"more"], "v2", own_bytes=4)
    found = {one.digest: (one.size_bytes, one.built_on) for one in await kept.below(f"{HOST}/commits/alice")}
    assert found == {says: (0, ()), wrote: (4, ())}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The requests that reach the registry."""
    told: list[str] = []
    call = RegistryApi.call

    async def counted(self: RegistryApi, method: str, path: str, *, none: Sequence[int] = ()) -> tuple[int, Any, bytes]:
        told.append(f"{method} {path.partition('?')[0]}")
        return await call(self, method, path, none=none)

    monkeypatch.setattr(RegistryApi, "call", counted)
    return told


def checkpoint(expires_s: int, mark: str) -> str:
    return f"cp-0123456789abcdef-1-{expires_s}-{mark * 8}"


async def test_checkpoints_whose_time_is_not_over_cost_no_requests(registry: Registry, asked: list[str]) -> None:
    kept = KeptImages(PrivateRegistry(HOST), registry.push)
    repository = "commits/alice/checkpoints"
    for mark in "abcde":
        await registry.image(repository, [b"base", mark.encode()], checkpoint(2_000, mark))
    over = await registry.image(repository, [b"base", b"over!"], checkpoint(1_000, "o"))
    # Neither is a checkpoint, whatever its tag: an owner may name an image so.
    await registry.image("commits/alice/repo", [b"base", b"named"], checkpoint(1_000, "n"))
    await registry.image("commits/alice/deep/checkpoints", [b"base", b"deep"], checkpoint(1_000, "d"))
    names = ["GET _catalog", f"GET {repository}/tags/list"]
    assert await kept.expired(999_999) == []
    assert asked == names
    asked.clear()
    (found,) = await kept.expired(1_000_000)
    assert (found.name, found.digest, found.size_bytes) == (f"{HOST}/{repository}", over, 5)
    assert found.tags == (checkpoint(1_000, "o"),)
    assert len(asked) == len(names) + 3  # what its tag stands for, its manifest and its configuration
    asked.clear()
    # One that is still needed is asked for again, each minute.
    assert await kept.expired(1_000_000) == [found]
    assert asked == names
    await kept.remove(found)
    assert await kept.expired(1_000_000) == []


async def test_what_was_listed_once_costs_no_requests_but_for_tags_that_move(
    registry: Registry, asked: list[str]
) -> None:
    kept = KeptImages(PrivateRegistry(HOST), registry.push)
    folder = f"{HOST}/commits/alice"
    await registry.image("commits/alice/checkpoints", [b"base", b"first"], checkpoint(2_000, "a"))
    await registry.image("commits/alice/repo", [b"base", b"second"], "v1")
    listed = await kept.below(folder)
    tags = ["GET commits/alice/checkpoints/tags/list", "GET commits/alice/repo/tags/list"]
    asked.clear()
    assert await kept.below(folder) == listed
    assert asked == ["GET _catalog", *tags, "HEAD commits/alice/repo/manifests/v1"]
    moved = await registry.image("commits/alice/repo", [b"base", b"third"], "v1")
    assert [one.tags for one in await kept.below(folder) if one.digest == moved] == [("v1",)]


async def test_a_checkpoint_whose_tag_was_put_elsewhere_goes_all_the_same(registry: Registry) -> None:
    kept = KeptImages(PrivateRegistry(HOST), registry.push)
    repository, tag = "commits/alice/checkpoints", checkpoint(1_000, "a")
    await registry.image(repository, [b"base", b"first"], tag)
    (first,) = await kept.expired(1_000_000)
    other = await registry.image(repository, [b"base", b"other"], tag)
    await kept.remove(first)
    (second,) = await kept.expired(1_000_000)
    assert (second.digest, second.tags) == (other, (tag,))


async def test_the_same_tag_of_two_repositories_stands_for_either_ones_own(registry: Registry) -> None:
    kept = KeptImages(PrivateRegistry(HOST), registry.push)
    tag = checkpoint(1_000, "a")
    digests = {one: await registry.image(f"commits/{one}/checkpoints", [b"base", one.encode()], tag) for one in "ab"}
    for _ in range(2):  # the second time as they are remembered
        found = await kept.expired(1_000_000)
        assert {one.name.split("/")[-2]: one.digest for one in found} == digests
    await kept.remove(found[0])
    assert await kept.expired(1_000_000) == [found[1]]


async def test_what_its_processes_are_an_image_says_by_its_tag_and_by_its_digest(registry: Registry) -> None:
    kept = KeptImages(PrivateRegistry(HOST), registry.push)
    digest = await registry.image("commits/alice/repo", [b"base", b"first"], "v1")
    for name in (f"{HOST}/commits/alice/repo:v1", f"{HOST}/commits/alice/repo@{digest}"):
        said = await kept.config(name)
        assert said is not None
        assert (said.digest, said.cmd) == (digest, ("run",))
    assert await kept.config("elsewhere.example/repo:v1") is None
    with pytest.raises(Problem, match="has no") as refused:
        await kept.config(f"{HOST}/commits/alice/repo:v2")
    assert refused.value.code == "image_not_found"


async def test_repositories_that_are_told_in_smaller_parts_than_asked_for_are_all_found() -> None:
    known = [f"commits/{owner}/r" for owner in "abcde"]

    async def catalog(request: web.Request) -> web.Response:
        part = [one for one in (*known, "mirror/x") if one > request.query["last"]][:2]
        more = {"Link": f'</v2/_catalog?last={part[-1]}&n=2>; rel="next"'}
        return web.json_response({"repositories": part}, headers=more if part[-1] != "mirror/x" else {})

    app = web.Application()
    app.router.add_get("/v2/_catalog", catalog)
    async with TestServer(app) as server, aiohttp.ClientSession(server.make_url("/v2/")) as session:
        assert await RegistryApi(session).repositories("commits") == known


async def test_tags_that_are_told_in_parts_are_all_found() -> None:
    known = [f"tag-{number}" for number in range(7)]
    asked: list[str] = []

    async def tags(request: web.Request) -> web.Response:
        after = request.query.get("last", "")
        asked.append(after)
        part = [one for one in known if one > after][:3]
        # Absolute, as some registries have it: the host is not followed.
        more = {"Link": f'<https://elsewhere.test/v2/r/tags/list?last={part[-1]}&n=3>; rel="next"'}
        return web.json_response({"name": "r", "tags": part}, headers=more if part[-1] != known[-1] else {})

    app = web.Application()
    app.router.add_get("/v2/r/tags/list", tags)
    async with TestServer(app) as server, aiohttp.ClientSession(server.make_url("/v2/")) as session:
        assert await RegistryApi(session).tags("r") == known
        assert await RegistryApi(session).tags("gone") == []
    assert asked == ["", "tag-2", "tag-5"]


@asynccontextmanager
async def told(answers: Mapping[str, tuple[list[str], str]]) -> AsyncIterator[tuple[RegistryApi, list[str]]]:
    """A registry that tells names by the ``token`` of a query, with the link to the next part; the queries it got."""
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.query_string)
        names, link = answers[request.query.get("token", "")]
        headers = {"Link": f'<{link}>; rel="next"'} if link else {}
        return web.json_response({"repositories": names, "tags": names}, headers=headers)

    app = web.Application()
    app.router.add_get("/v2/_catalog", answer)
    app.router.add_get("/v2/r/tags/list", answer)
    async with TestServer(app) as server, aiohttp.ClientSession(server.make_url("/v2/")) as session:
        yield RegistryApi(session), asked


async def test_parts_by_a_token_of_the_registry_are_followed() -> None:
    parts = {
        "": (["aa/x", "commits/a/r"], "/v2/_catalog?n=2&token=b%2B1"),
        "b+1": (["commits/b/r"], "/v2/_catalog?n=2&token=c"),
        "c": (["commits/c/r", "mirror/x"], "/v2/_catalog?n=2&token=never"),
    }
    async with told(parts) as (api, asked):
        assert await api.repositories("commits") == ["commits/a/r", "commits/b/r", "commits/c/r"]
        assert asked[1:] == ["n=2&token=b%2B1", "n=2&token=c"]
    tags = {"": (["1", "2"], "list?token=x"), "x": (["3"], "")}
    async with told(tags) as (api, _):
        assert await api.tags("r") == ["1", "2", "3"]


@pytest.mark.parametrize(
    "link",
    [
        "/v2/{path}?token=",  # the same part again
        "/v2/{path}?token=again",  # another one that has the same
        "/v2/other?token=again",
        "/v2/{path}",
    ],
)
async def test_parts_that_lead_nowhere_are_no_short_list(link: str) -> None:
    for path in ("_catalog", "r/tags/list"):
        to = link.format(path=path)
        async with told({"": (["commits/a/r"], to), "again": (["commits/a/r"], to)}) as (api, asked):
            with pytest.raises(ValueError, match=path):
                await (api.repositories("commits") if path == "_catalog" else api.tags("r"))
            assert len(asked) <= 2


async def test_a_registry_that_is_away_or_refuses_is_named(registry: Registry, tmp_path: Path) -> None:
    (tmp_path / "account").write_text("user:wrong")
    kept = KeptImages(PrivateRegistry(HOST), registry.push)
    with pytest.raises(Problem, match="localhost") as refused:
        await kept.below(f"{HOST}/commits/alice")
    assert refused.value.code == "upstream_timeout"
    # The callers of the API read it, so the account is not in it.
    for secret in ("Authorization", "wrong", aiohttp.encode_basic_auth("user", "wrong")):
        assert secret not in refused.value.detail
    away = PushSettings("localhost:1", tmp_path / "account", None)
    with pytest.raises(Problem) as failed:
        await KeptImages(PrivateRegistry(HOST), away).below(f"{HOST}/commits/alice")
    assert failed.value.code == "upstream_timeout"


async def test_a_token_is_asked_for_once_for_each_repository_and_for_what_is_removed(tmp_path: Path) -> None:
    async with by_token(tmp_path) as registry:
        kept = KeptImages(PrivateRegistry(HOST), registry.push)
        pushed = {await registry.image(f"commits/alice/{name}", [b"base", name.encode()], "v1") for name in "ab"}
        for _ in range(2):
            found = await kept.below(f"{HOST}/commits/alice")
            assert {one.digest for one in found} == pushed
        await kept.remove(found[0])
        listing, *rest = registry.tokens
        assert listing == "registry:catalog:*"
        assert sorted(rest[:2]) == ["repository:commits/alice/a:pull", "repository:commits/alice/b:pull"]
        assert rest[2:] == [f"repository:{found[0].name.partition('/')[2]}:delete"]
        assert [one.digest for one in await kept.below(f"{HOST}/commits/alice")] == [found[1].digest]


async def test_a_token_that_ends_soon_is_not_shown_again(tmp_path: Path) -> None:
    async with by_token(tmp_path, lives_s=1) as registry:
        kept = KeptImages(PrivateRegistry(HOST), registry.push)
        pushed = await registry.image("commits/alice/repo", [b"base", b"a"], "v1")
        for _ in range(2):
            assert await kept.digest(f"{HOST}/commits/alice/repo:v1") == pushed
        assert registry.tokens == ["repository:commits/alice/repo:pull"] * 2


@pytest.mark.parametrize("realm", ["http://localhost:1/token", "https:///token", "", "://"])
async def test_a_token_is_not_asked_for_without_tls(tmp_path: Path, realm: str) -> None:
    Authority().write(tmp_path / "tls", "localhost")
    keys = Authority().write(tmp_path / "keys", "tokens")
    auth = {
        "token": {"realm": realm or "x", "service": SERVICE, "issuer": ISSUER, "rootcertbundle": str(keys / "tls.crt")}
    }
    async with served(tmp_path, auth, lambda _: "") as registry:
        with pytest.raises(Problem, match="no address with TLS") as refused:
            await KeptImages(PrivateRegistry(HOST), registry.push).below(f"{HOST}/commits/alice")
        assert refused.value.code == "upstream_timeout"
