"""What an engine may answer, and the problem that it becomes; the engine is a script of answers on a real socket."""

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from controlplane.cluster.engine.client import EngineClient, Missing
from controlplane.cluster.engine.containers import Image
from controlplane.cluster.engine.images import Images
from controlplane.errors import Problem

Serve = Callable[[web.Request], web.Response]


@asynccontextmanager
async def engine(folder: Path, serve: Serve) -> AsyncIterator[EngineClient]:
    """A client of an engine that answers as `serve` says."""

    async def answer(request: web.Request) -> web.Response:
        if request.path.endswith("/version"):
            return web.json_response({"ApiVersion": "1.41", "Version": "1"})
        return serve(request)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.UnixSite(runner, str(folder / "e.sock")).start()
        async with EngineClient.connect(f"unix://{folder / 'e.sock'}") as client:
            yield client
    finally:
        await runner.cleanup()


def refusal(status: int, message: str) -> web.Response:
    return web.json_response({"message": message}, status=status)


@pytest.mark.parametrize(
    ("status", "message", "code"),
    [
        (400, "Range of CPUs is from 0.01 to 2.00", "unsupported"),
        (500, "write /var: no space left on device", "capacity_unavailable"),
        (500, "OCI runtime error", "internal"),
        (409, "the name is in use", "internal"),
        (500, "unable to find user x: no matching entries in passwd file", "unsupported"),
    ],
)
async def test_a_refusal_is_typed_and_keeps_the_engines_words(
    tmp_path: Path, status: int, message: str, code: str
) -> None:
    async with engine(tmp_path, lambda _: refusal(status, message)) as client:
        with pytest.raises(Problem) as caught:
            await client.call("POST", "containers/create", {"name": "n"}, {"Image": "i"})
    assert caught.value.code == code
    assert message in caught.value.detail
    assert caught.value.details["engine_status"] == str(status)


@pytest.mark.parametrize("status", [404, 500])
async def test_what_is_gone_is_missing_also_while_it_goes(tmp_path: Path, status: int) -> None:
    async with engine(tmp_path, lambda _: refusal(status, "no such container")) as client:
        with pytest.raises(Missing):
            await client.call("GET", "containers/x/json")


async def test_an_engine_that_is_not_there_is_said_to_be_unreachable(tmp_path: Path) -> None:
    with pytest.raises(Problem, match="Cannot connect"):
        async with EngineClient.connect(f"unix://{tmp_path}/none.sock"):
            pass


def puller(lines: Sequence[dict[str, Any]], present: Sequence[str] = ()) -> Serve:
    """An engine with the images `present` that answers pulls with `lines`; one without an error brings the image."""
    has = set(present)

    def serve(request: web.Request) -> web.Response:
        if request.path.endswith("/images/create"):
            if not any("error" in line for line in lines):
                has.add(f"{request.query['fromImage']}:{request.query.get('tag', '')}".rstrip(":"))
            return web.Response(text="\n".join(json.dumps(line) for line in lines))
        name = request.path.partition("/images/")[2].removesuffix("/json")
        if name not in has:
            return refusal(404, "no such image")
        # By a digest it has no tag.
        return web.json_response({"Id": f"sha256:{name}", "RepoTags": [] if "sha256:" in name else [name]})

    return serve


@pytest.mark.parametrize(
    ("name", "why", "code"),
    [
        ("r/not-found:1", "initializing r/not-found:1: 503 Service Unavailable", "image_pull_failed"),
        ("api/ollama-tls:1", "registry.example.com/api/ollama-tls:1: requested access is denied", "image_not_found"),
        ("r:5000/timeout", "r:5000/timeout: manifest unknown", "image_not_found"),
    ],
)
async def test_the_words_of_a_name_are_not_the_engines(tmp_path: Path, name: str, why: str, code: str) -> None:
    async with engine(tmp_path, puller([{"error": why}])) as client:
        with pytest.raises(Problem, match=code):
            await Images(client).pull(name)


@pytest.mark.parametrize(("architecture", "refused"), [("arm64", True), ("amd64", False), ("386", False), ("", False)])
async def test_an_image_for_another_machine_is_refused(tmp_path: Path, architecture: str, refused: bool) -> None:
    def serve(_: web.Request) -> web.Response:
        return web.json_response({"Id": "sha256:x", "Architecture": architecture, "RepoTags": ["a:1"]})

    async with engine(tmp_path, serve) as client:
        images = Images(client, "amd64")
        if refused:
            with pytest.raises(Problem, match="unsupported: image a:1 is for arm64, this machine is amd64"):
                await images.local("a:1")
        else:
            assert await images.local("a:1") == Image("sha256:x")


@pytest.mark.parametrize(
    ("why", "code"),
    [
        ("manifest unknown: manifest unknown", "image_not_found"),
        ("pull access denied for x, repository does not exist", "image_not_found"),
        ("pinging container registry r: dial tcp: lookup r: no such host", "image_pull_failed"),
        ("received unexpected HTTP status: 503 Service Unavailable", "image_pull_failed"),
        ("toomanyrequests: You have reached your pull rate limit", "image_pull_failed"),
    ],
)
async def test_a_failed_pull_says_whose_fault_it_is(tmp_path: Path, why: str, code: str) -> None:
    async with engine(tmp_path, puller([{"status": "Pulling"}, {"error": why}])) as client:
        with pytest.raises(Problem, match=code) as caught:
            await Images(client).pull("r/x:1")
    assert caught.value.details["image"] == "r/x:1"


async def test_a_local_image_asks_no_registry_also_by_its_short_name(tmp_path: Path) -> None:
    async with engine(tmp_path, puller([{"error": "asked"}], ["a:1", "localhost/b:1"])) as client:
        images = Images(client)
        assert await images.local("a:1") == Image("sha256:a:1")
        assert await images.local("b:1") == Image("sha256:localhost/b:1")
        assert await images.local("c:1") is None
        assert await images.pull("a:1") == Image("sha256:a:1")


async def test_an_image_with_a_digest_is_found_by_the_engines_id_or_by_its_registrys(tmp_path: Path) -> None:
    ours, theirs, none = (f"sha256:{digit * 64}" for digit in "abc")
    async with engine(tmp_path, puller([{"error": "asked"}], [ours, f"r.io/x@{theirs}"])) as client:
        images = Images(client)
        for name in (f"localhost/built:1@{ours}", f"r.io/x:1@{theirs}", f"r.io/x@{theirs}"):
            assert await images.local(name) is not None
        assert await images.local(f"r.io/x:1@{none}") is None


async def test_an_image_that_is_pulled_by_digest_gets_its_tag_too(tmp_path: Path) -> None:
    tagged: list[tuple[str, dict[str, str]]] = []
    pull = puller([{"status": "Done"}])

    def serve(request: web.Request) -> web.Response:
        if not request.path.endswith("/tag"):
            return pull(request)
        tagged.append((request.path.partition("/images/")[2], dict(request.query)))
        return web.Response(status=201)

    digest = f"sha256:{'a' * 64}"
    async with engine(tmp_path, serve) as client:
        assert await Images(client).pull(f"r.io/x:1@{digest}") == Image(f"sha256:r.io/x@{digest}")
        await Images(client).pull(f"r.io/y@{digest}")
    assert tagged == [(f"sha256:r.io/x@{digest}/tag", {"repo": "r.io/x", "tag": "1"})]


async def test_a_pull_brings_the_image(tmp_path: Path) -> None:
    async with engine(tmp_path, puller([{"status": "Pulling"}, {"status": "Done"}])) as client:
        assert await Images(client).pull("r/x:1") == Image("sha256:r/x:1")


@pytest.mark.parametrize(
    ("local", "registry", "asks", "state"),
    [
        (True, (500, ""), True, "here"),
        (False, (200, ""), True, "elsewhere"),
        (False, (404, "manifest unknown"), False, "unknown"),
        (False, (500, "Get https://example.com: dial tcp: no such host"), True, "unknown"),
        (False, (404, "manifest unknown"), True, None),
        (False, (403, "pull access denied, repository does not exist"), True, None),
    ],
)
async def test_where_an_image_is_can_be_told_without_pulling_it(
    tmp_path: Path, local: bool, registry: tuple[int, str], asks: bool, state: str | None
) -> None:
    def serve(request: web.Request) -> web.Response:
        if "/images/" in request.path:
            found = {"Id": "i", "RepoTags": ["example.com/a:1"]}
            return web.json_response(found) if local else refusal(404, "no such image")
        return refusal(*registry) if registry[1] else web.json_response({"Descriptor": {}})

    async with engine(tmp_path, serve) as client:
        if state is not None:
            assert await Images(client).find("example.com/a:1", ask_registry=asks) == state
            return
        with pytest.raises(Problem, match="image_not_found"):
            await Images(client).find("example.com/a:1", ask_registry=asks)
