"""Control plane, the real mirror and real registries: what is copied, what it costs, and what a client sees fail."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest
from aiohttp import web

from controlplane.clock import SystemClock
from controlplane.cluster.kubernetes.node_agents.recorded_copies import RecordedCopies
from controlplane.cluster.kubernetes.node_agents.registry_account import RegistryAccount
from controlplane.cluster.kubernetes.node_agents.registry_api import RegistryApi
from controlplane.cluster.kubernetes.node_agents.remembered import Remembered
from controlplane.errors import Problem
from controlplane.images import (
    Copied,
    Copying,
    Credentials,
    ImageOptions,
    PrivateRegistry,
    RecordedList,
    StoreLimit,
    in_tags,
    parse,
    whose,
)
from controlplane.lifecycle import Options
from controlplane.lifecycle.images.pins import PAST_FULL
from controlplane.model import Sandbox, SandboxSpec
from controlplane.model.spec import Pull
from controlplane.registry import CollectorClient, MirrorAwayError, MirrorClient, Registries
from controlplane.wire import mirror_pb2, mirror_pb2_grpc
from tests.support.authority import Authority
from tests.support.collector import build as build_collector
from tests.support.collector import collecting
from tests.support.fake_cluster import FakeCluster
from tests.support.fake_mirror import FakeKeyrings
from tests.support.mirror import SERVER, Mirror, Program, build, why_no_mirror
from tests.support.registry import HTPASSWD, Pusher, registry_server
from tests.support.waiting import until
from tests.support.world import OWNER, World, world

pytestmark = pytest.mark.skipif(why_no_mirror() is not None, reason=str(why_no_mirror()))

# user:password, as the registries of the tests take it.
AUTH = {"Authorization": aiohttp.encode_basic_auth("user", "password")}
LAYER_BYTES = 20
FILES = {"etc/name": b"a", "usr/bin/program": bytes(range(256)) * 64}


@pytest.fixture(scope="module")
def binary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("mirror"))


@dataclass
class Place:
    """An upstream registry, a private one that the mirror fills, and a control plane of them."""

    upstream: Pusher
    private: str
    mirror: Mirror
    plane: World

    async def created(
        self, name: str, owner: str = OWNER, timeout_ms: int = 60_000, pull: Pull = "auto"
    ) -> tuple[Sandbox, str]:
        """A sandbox, and the image that its cluster was given."""
        spec = SandboxSpec(image=f"{self.upstream.address}/{name}", start_timeout_ms=timeout_ms, pull=pull)
        sandbox = (await self.plane.create(owner, spec)).sandbox
        return sandbox, self.plane.cluster.held[sandbox.id].spec.image

    async def refused(self, name: str, timeout_ms: int = 60_000, pull: Pull = "auto") -> Problem:
        with pytest.raises(Problem) as caught:
            await self.created(name, timeout_ms=timeout_ms, pull=pull)
        return caught.value


@contextmanager
def registry(folder: Path, *, account: bool = True) -> Iterator[str]:
    """A registry with an account, or one that gives everything to anybody."""
    folder.mkdir()
    (folder / "htpasswd").write_text(HTPASSWD)
    auth = {"htpasswd": {"realm": "r", "path": str(folder / "htpasswd")}}
    more: dict[str, Any] = {"auth": auth} if account else {}
    with registry_server(folder, **more) as address:
        yield address


@asynccontextmanager
async def place(
    binary: Path,
    folder: Path,
    upstream: str,
    private: str,
    *,
    keyrings: FakeKeyrings | None = None,
    stall_ms: int = 30_000,
    headers: Mapping[str, str] | None = None,
    collector: CollectorClient | None = None,
    recorded: RecordedList | None = None,
    past_full: bool = True,
    recorded_bytes: int = 0,
) -> AsyncIterator[Place]:
    (folder / "program").mkdir(exist_ok=True)
    program = Program(binary, folder / "program", [upstream], stall_ms)
    rings = keyrings or FakeKeyrings()
    images = ImageOptions(
        "auto",
        private=PrivateRegistry(private),
        budget=StoreLimit.parse("80%"),
        past_full=past_full,
        recorded_bytes=recorded_bytes,
        plain=[upstream],
    )
    options = Options(starts_in_flight=16, images=images)
    async with AsyncExitStack() as stack:
        mirror = await stack.enter_async_context(program.running(private))
        registries = await stack.enter_async_context(Registries.open(rings.of, SystemClock(), plain=[upstream]))
        cluster = FakeCluster(image_state="unknown")
        plane = await stack.enter_async_context(
            world(
                cluster,
                options=options,
                clock=SystemClock(),
                registry=registries,
                mirror=mirror.client,
                keyrings=rings,
                collector=collector,
                recorded=recorded,
            )
        )
        http = await stack.enter_async_context(aiohttp.ClientSession())
        yield Place(Pusher(http, upstream, headers or {}), private, mirror, plane)


@pytest.fixture
async def real(binary: Path, tmp_path: Path) -> AsyncIterator[Place]:
    with registry(tmp_path / "upstream", account=False) as upstream, registry(tmp_path / "private") as private:
        async with place(binary, tmp_path, upstream, private) as made:
            yield made


async def pulled(place: Place, image: str) -> bytes:
    """The manifest that a node would get from the private registry."""
    reference = parse(image)
    url = f"http://{reference.registry}/v2/{reference.name.partition('/')[2]}/manifests/{reference.digest}"
    accept = {"Accept": "application/vnd.oci.image.manifest.v1+json"}
    async with place.upstream.http.get(url, headers={**AUTH, **accept}) as answer:
        assert answer.status == 200, await answer.text()
        return await answer.read()


async def test_what_runs_is_in_the_private_registry_and_nowhere_else(real: Place) -> None:
    named = await real.upstream.image("team/app", "1")
    sandbox, image = await real.created("team/app:1")
    assert (sandbox.image_digest, sandbox.image_ran) == (named, named)
    host = real.upstream.address.replace(":", "__")
    assert image == f"{real.private}/mirror/{host}/team/app@{named}"
    assert b"layers" in await pulled(real, image)


async def test_of_an_image_for_many_platforms_ours_runs(real: Place) -> None:
    digests = {
        one: await real.upstream.image("team/app", one, architecture=one, mark=one) for one in ("amd64", "s390x")
    }
    named = await real.upstream.index("team/app", "1", digests)
    sandbox, image = await real.created("team/app:1")
    assert (sandbox.image_digest, sandbox.image_ran) == (named, digests["amd64"])
    assert image.endswith(digests["amd64"])


async def test_a_herd_is_one_copy(real: Place) -> None:
    await real.upstream.image("team/app", "1")
    herd = await asyncio.gather(*(real.created("team/app:1") for _ in range(32)))
    assert len({image for _, image in herd}) == 1
    async with real.upstream.http.get(f"http://{real.mirror.metrics}/metrics") as answer:
        lines = [line for line in (await answer.text()).splitlines() if line.startswith("rollbox_mirror_copies_total")]
    assert [line for line in lines if not line.endswith(" 0")] == ['rollbox_mirror_copies_total{outcome="copied"} 1']


async def test_only_the_control_plane_is_answered(real: Place, tmp_path: Path) -> None:
    stranger = Authority().write(tmp_path / "stranger", "control-plane.rollbox.rollbox")
    # Signed by another authority: it does not know the mirror, and the mirror does not know it.
    (stranger / "ca.crt").write_bytes((tmp_path / "program/client/ca.crt").read_bytes())
    async with MirrorClient.open(real.mirror.address, stranger, SERVER) as client:
        with pytest.raises(MirrorAwayError):
            await client.find("mirror/a", "1")
    # Of our authority, with the name of another part.
    async with MirrorClient.open(real.mirror.address, tmp_path / "program/server", SERVER) as client:
        with pytest.raises(MirrorAwayError):
            await client.find("mirror/a", "1")
    async with grpc.aio.insecure_channel(real.mirror.address) as channel:
        with pytest.raises(grpc.aio.AioRpcError):
            await mirror_pb2_grpc.MirrorStub(channel).Find(mirror_pb2.FindRequest())  # type: ignore[no-untyped-call]


async def test_a_mirror_that_is_replaced_goes_on(real: Place, binary: Path, tmp_path: Path) -> None:
    named = await real.upstream.image("team/app", "1")
    source = parse(f"{real.upstream.address}/team/app:1").at(named)
    (tmp_path / "other").mkdir()
    other = Program(binary, tmp_path / "other", [real.upstream.address])
    told: list[Copying | Copied] = []
    async for one in real.mirror.client.copy(source, None, "mirror/app", ["amd64"]):
        told.append(one)
    async with other.running(real.private) as second:
        async for one in second.client.copy(source, None, "mirror/app", ["amd64"]):
            told.append(one)
        found = await second.client.find("mirror/app", "1")
    assert [one for one in told if isinstance(one, Copied)] == [Copied(named, there=False), Copied(named, there=True)]
    assert found is not None
    assert (found.digest, found.named) == (named, named)


async def test_what_was_copied_starts_without_its_registry(binary: Path, tmp_path: Path) -> None:
    with registry(tmp_path / "private") as private:
        with registry(tmp_path / "upstream", account=False) as upstream:
            async with place(binary, tmp_path, upstream, private) as real:
                named = await real.upstream.image("team/app", "1")
                _, image = await real.created("team/app:1")
        # Another control plane and another mirror, which know nothing, and no upstream registry.
        async with place(binary, tmp_path, upstream, private) as real:
            sandbox, again = await real.created("team/app:1")
            assert (again, sandbox.image_digest, sandbox.image_stale) == (image, named, True)
            by_digest, again = await real.created(f"team/app@{named}")
            assert (again, by_digest.image_stale) == (image, False)


async def test_two_owners_and_one_private_image(binary: Path, tmp_path: Path) -> None:
    with registry(tmp_path / "upstream") as upstream, registry(tmp_path / "private") as private:
        keyrings = FakeKeyrings({OWNER: {upstream: Credentials("user", "password")}})
        async with place(binary, tmp_path, upstream, private, keyrings=keyrings, headers=AUTH) as real:
            named = await real.upstream.image("team/app", "1")
            _, image = await real.created("team/app:1")
            for name in ("team/app:1", f"team/app@{named}"):
                with pytest.raises(Problem) as caught:
                    await real.created(name, owner="bob")
                assert caught.value.code == "image_not_found"
            with pytest.raises(Problem) as caught:
                await real.plane.create("bob", SandboxSpec(image=image))
            assert caught.value.code == "image_not_found"
            assert len(real.plane.cluster.held) == 1


# -- converted copies -------------------------------------------------------------------------------------------------


async def test_the_first_start_is_whole_what_is_converted_was_started_from_and_the_next_start_gets_it(
    real: Place, binary: Path, tmp_path: Path
) -> None:
    private = PrivateRegistry(real.private)
    real.plane.cluster.lazy.images = private.converted
    named = await real.upstream.archive("team/app", "1", FILES)
    first, _ = await real.created("team/app:1")
    assert (first.image_ran, first.image_pulled) == (named, "full")
    source = parse(f"{real.upstream.address}/team/app").at(named)
    repository = private.repository(source, "estargz")
    async with asyncio.timeout(60):
        while not await _offered(real.mirror.client, repository, named):  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.1)
    assert real.plane.sidecars.tries == ["/bin/sh"]
    # A control plane that knows nothing.
    (tmp_path / "again").mkdir()
    async with place(binary, tmp_path / "again", real.upstream.address, real.private) as again:
        again.plane.cluster.lazy.images = private.converted
        sandbox, image = await again.created("team/app:1")
        assert image == private.copy(source, sandbox.image_ran, "estargz")
        assert (sandbox.image_digest, sandbox.image_pulled) == (named, "lazy")
        assert sandbox.image_ran != named
        manifest = json.loads(await pulled(again, image))
        assert manifest["annotations"]["dev.rollbox.converted-from"] == named
        assert all("containerd.io/snapshot/stargz/toc.digest" in one["annotations"] for one in manifest["layers"])
        # Nobody names it.
        with pytest.raises(Problem) as caught:
            await again.plane.create(OWNER, SandboxSpec(image=image))
        assert caught.value.code == "image_not_found"


async def test_a_start_that_waits_for_a_conversion_gets_it(real: Place) -> None:
    real.plane.cluster.lazy.images = PrivateRegistry(real.private).converted
    await real.upstream.archive("team/app", "1", FILES)
    sandbox, image = await real.created("team/app:1", pull="lazy")
    assert "/estargz/" in image
    assert "convert" in sandbox.timings_ms


async def test_an_image_that_is_not_converted_starts_whole_and_lazy_is_refused_by_its_reason(real: Place) -> None:
    real.plane.cluster.lazy.images = PrivateRegistry(real.private).converted
    await real.upstream.image("team/app", "1")  # no archive
    problem = await real.refused("team/app:1", pull="lazy")
    assert problem.code == "unsupported"
    assert "not converted" in problem.detail
    sandbox, image = await real.created("team/app:1")
    assert "/mirror/" in image
    assert "not converted" in sandbox.image_pulled_why


async def test_an_owners_list_orders_its_own_copy_which_every_control_plane_gives_its_starts_alone(
    real: Place, binary: Path, tmp_path: Path
) -> None:
    private = PrivateRegistry(real.private)
    real.plane.cluster.lazy.images = private.converted
    named = await real.upstream.archive("team/app", "1", FILES)
    common, _ = await real.created("team/app:1", pull="lazy")
    body = {"image": f"{real.upstream.address}/team/app:1", "first": ["/usr/bin/program", "/not/there"]}
    answer = await real.plane.api("POST", "/v1/images/convert", body=body)
    told = json.loads(answer.body.splitlines()[-1])
    assert (told["state"], told["digest"]) == ("offered", named)
    assert told["ran"] != common.image_ran
    source = parse(f"{real.upstream.address}/team/app").at(named)
    (tmp_path / "again").mkdir()
    async with place(binary, tmp_path / "again", real.upstream.address, real.private) as again:
        again.plane.cluster.lazy.images = private.converted
        own, image = await again.created("team/app:1")
        assert (own.image_ran, image) == (told["ran"], private.copy(source, told["ran"], "estargz"))
        other, _ = await again.created("team/app:1", owner="bob")
        assert (other.image_ran, other.image_pulled) == (common.image_ran, "lazy")
        manifest = json.loads(await pulled(again, image))
        assert manifest["annotations"]["dev.rollbox.converted-from"] == named


async def test_recorded_copies_are_counted_for_their_owner_and_go_once_a_later_list_holds_and_nothing_runs_from_them(
    binary: Path, tmp_path: Path
) -> None:
    storage, program = tmp_path / "private" / "storage", build_collector(tmp_path)
    with registry(tmp_path / "upstream", account=False) as upstream, registry(tmp_path / "private") as private:
        async with (
            collecting(program, tmp_path, storage, settle=10) as collector,
            place(binary, tmp_path, upstream, private, collector=collector.client, recorded_bytes=1 << 20) as real,
        ):
            real.plane.cluster.lazy.images = PrivateRegistry(private).converted
            await real.upstream.archive("team/app", "1", {"large": random.randbytes(1 << 19), "one": b"1", "two": b"2"})

            async def listed(*first: str) -> dict[str, Any]:
                body = {"image": f"{upstream}/team/app:1", "first": [*first]}
                answer = await real.plane.api("POST", "/v1/images/convert", body=body)
                told: dict[str, Any] = json.loads(answer.body.splitlines()[-1])
                return told

            async def tidied() -> set[str]:
                """The recorded copies that are left after a clean-up, a day later."""
                at_s = time.time() - 86_400
                for path in (storage / "docker").rglob("*"):
                    if path.is_file():
                        os.utime(path, (at_s, at_s))
                cleanup = real.plane.service._core._registry_cleanup
                assert cleanup is not None
                await cleanup._clean(urgent=False)
                return {one.digest for one in await collector.client.stored() if one.recorded}

            async def leaves(digest: str) -> bool:
                return await tidied() == {digest}

            first = (await listed("/one"))["ran"]
            running, _ = await real.created("team/app:1")
            assert running.image_ran == first
            second = (await listed("/two"))["ran"]
            told = {one.digest: one for one in await collector.client.stored() if one.recorded}
            mine = in_tags(whose(OWNER))
            assert {name: (one.owners, one.offered) for name, one in told.items()} == {
                first: ((mine,), False),
                second: ((mine,), True),
            }
            copies, used = await collector.client.recorded(mine)
            assert (copies, await collector.client.recorded(in_tags(whose("bob")))) == (2, (0, 0))
            assert 1 << 20 < used < 3 << 20
            refused = await listed("/large")
            assert (refused["code"], refused["details"]["used"]) == ("quota_exceeded", str(used))
            # It has too much, and what runs stays; the sandbox that has tried the second copy may not have ended yet.
            await until(lambda: leaves(first), 30)
            await real.plane.service.delete(OWNER, running.id, wait_s=5)
            assert (await listed("/two"))["ran"] == second
            await until(lambda: leaves(second), 30)
            assert (await real.created("team/app:1"))[0].image_ran == second


@asynccontextmanager
async def api_of(address: str) -> AsyncIterator[RegistryApi]:
    async with aiohttp.ClientSession(f"http://{address}/v2/") as session:
        yield RegistryApi(session, RegistryAccount(session, "user", "password", None, Remembered(8)))


async def test_in_a_registry_that_somebody_else_looks_after_they_are_counted_and_go_by_its_api_alone(
    binary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What later lists took the place of, and nothing runs from, goes with the next look.
    monkeypatch.setattr("controlplane.images.recorded.YOUNG_MS", 0)
    with registry(tmp_path / "upstream", account=False) as upstream, registry(tmp_path / "private") as private:
        copies = RecordedCopies(lambda: api_of(private))
        async with place(binary, tmp_path, upstream, private, recorded=copies, recorded_bytes=1 << 20) as real:
            real.plane.cluster.lazy.images = PrivateRegistry(private).converted
            await real.upstream.archive("team/app", "1", {"large": random.randbytes(1 << 19), "one": b"1", "two": b"2"})

            async def listed(*first: str) -> dict[str, Any]:
                body = {"image": f"{upstream}/team/app:1", "first": [*first]}
                answer = await real.plane.api("POST", "/v1/images/convert", body=body)
                told: dict[str, Any] = json.loads(answer.body.splitlines()[-1])
                return told

            async def leaves(digest: str) -> bool:
                cleanup = real.plane.service._core._recorded_cleanup
                assert cleanup is not None
                await cleanup.look()
                return {one.digest for one in await copies.all()} == {digest}

            first = (await listed("/one"))["ran"]
            running, _ = await real.created("team/app:1")
            assert running.image_ran == first
            second = (await listed("/two"))["ran"]
            told = {one.digest: one for one in await copies.all()}
            mine = in_tags(whose(OWNER))
            assert {name: (one.owners, one.offered) for name, one in told.items()} == {
                first: ([mine], False),
                second: ([mine], True),
            }
            refused = await listed("/large")
            assert refused["code"] == "quota_exceeded"
            assert 1 << 20 < int(refused["details"]["used"]) < 3 << 20
            assert not await leaves(second)  # the first one runs
            await real.plane.service.delete(OWNER, running.id, wait_s=5)
            await until(lambda: leaves(second), 30)
            assert (await real.created("team/app:1"))[0].image_ran == second
            # The verdict of the first list is gone with it, and the list gives the same copy again.
            assert (await listed("/one"))["ran"] == first


async def _offered(mirror: MirrorClient, repository: str, source: str) -> bool:
    found = await mirror.converted(repository, source, ["amd64"])
    return found is not None and found.booted is True


# -- failures ---------------------------------------------------------------------------------------------------------

# Set when a test is over: until then a registry may be silent.
OVER = web.AppKey("over", asyncio.Event)
Meddle = Callable[[web.Request, str], Awaitable[web.StreamResponse | None]]


@asynccontextmanager
async def meddled(registry: str, meddle: Meddle) -> AsyncIterator[str]:
    """A registry in front of a real one, where the test may answer in its place."""
    async with aiohttp.ClientSession(auto_decompress=False) as http:

        async def serve(request: web.Request) -> web.StreamResponse:
            if (answer := await meddle(request, request.path)) is not None:
                return answer
            url = f"http://{registry}{request.path_qs}"
            headers = {name: one for name, one in request.headers.items() if name.lower() != "host"}
            async with http.request(request.method, url, headers=headers, data=await request.read()) as reply:
                kept = {
                    name: one.replace(registry, request.host)
                    for name, one in reply.headers.items()
                    if name.lower() not in ("transfer-encoding", "content-length", "connection")
                }
                body = await reply.read()
                if request.method == "HEAD":
                    kept["Content-Length"] = reply.headers.get("Content-Length", "0")
                return web.Response(status=reply.status, headers=kept, body=body)

        app = web.Application(client_max_size=1 << 30)
        app[OVER] = asyncio.Event()
        app.router.add_route("*", "/{path:.*}", serve)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            yield f"127.0.0.1:{runner.addresses[0][1]}"
        finally:
            app[OVER].set()
            await runner.cleanup()


def answers(part: str, status: int, times: int = 1_000, **headers: str) -> Meddle:
    left = [times]

    async def meddle(request: web.Request, path: str) -> web.StreamResponse | None:
        # What the control plane asks is answered: the failure is the mirror's to find.
        if part not in path or "rollbox-mirror" not in request.headers.get("User-Agent", "") or not left[0]:
            return None
        left[0] -= 1
        return web.Response(status=status, headers={name.replace("_", "-"): one for name, one in headers.items()})

    return meddle


def sends(content: bytes, length: int, *, then_silent: bool = False) -> Meddle:
    async def meddle(request: web.Request, path: str) -> web.StreamResponse | None:
        mirrors = "rollbox-mirror" in request.headers.get("User-Agent", "")
        if "/blobs/" not in path or request.method != "GET" or not mirrors:
            return None
        response = web.StreamResponse(headers={"Content-Length": str(length)})
        await response.prepare(request)
        await response.write(content)
        if then_silent:
            await request.app[OVER].wait()
        if request.transport is not None and len(content) < length:
            request.transport.close()
        return response

    return meddle


UPSTREAM = {
    "credentials expired": (answers("/v2/", 401, WWW_Authenticate='Basic realm="r"'), "image_not_found", 10),
    "gone since it was resolved": (answers("/manifests/", 404), "image_not_found", 10),
    "limits for a moment": (answers("/manifests/", 429, times=2, Retry_After="1"), "", 20),
    "limits for long": (answers("/manifests/", 429, Retry_After="3600"), "image_pull_failed", 10),
    "out of order": (answers("/blobs/", 500), "image_pull_failed", 10),
    "truncates": (sends(b"x", 100), "image_pull_failed", 15),
    "another digest": (sends(b"x" * LAYER_BYTES, LAYER_BYTES), "image_pull_failed", 10),
    "silent": (sends(b"x", 100, then_silent=True), "image_pull_failed", 20),
}


@pytest.mark.parametrize("what", UPSTREAM)
async def test_what_an_upstream_registry_does_has_its_code(what: str, binary: Path, tmp_path: Path) -> None:
    meddle, code, within_s = UPSTREAM[what]
    with registry(tmp_path / "upstream", account=False) as behind, registry(tmp_path / "private") as private:
        async with (
            meddled(behind, meddle) as upstream,
            place(binary, tmp_path, upstream, private, stall_ms=1_000) as real,
        ):
            await Pusher(real.upstream.http, behind, {}).image("team/app", "1")
            began_s = time.monotonic()
            async with asyncio.timeout(within_s * 6):
                if code:
                    problem = await real.refused("team/app:1")
                    assert problem.code == code, problem
                    assert upstream in problem.detail
                else:
                    await real.created("team/app:1")
            print(f"{what}: {code or 'started'} after {time.monotonic() - began_s:.1f} s")
            assert len(real.plane.cluster.held) == (0 if code else 1)


async def private_down(_: web.Request, path: str) -> web.StreamResponse | None:
    del path
    return web.Response(status=502)


async def private_refuses(_: web.Request, path: str) -> web.StreamResponse | None:
    del path
    return web.Response(status=401, headers={"WWW-Authenticate": 'Basic realm="r"'})


@pytest.mark.parametrize("meddle", [private_down, private_refuses])
async def test_a_private_registry_that_fails_is_named(meddle: Meddle, binary: Path, tmp_path: Path) -> None:
    with registry(tmp_path / "upstream", account=False) as upstream, registry(tmp_path / "private") as behind:
        async with (
            meddled(behind, meddle) as private,
            place(binary, tmp_path, upstream, private) as real,
        ):
            await real.upstream.image("team/app", "1")
            problem = await real.refused("team/app:1")
            assert problem.code == "image_pull_failed"
            assert f"the private registry {private}" in problem.detail


@contextmanager
def volume(folder: Path, size_bytes: int) -> Iterator[Path]:
    """A file system of its own, in memory; a file that fills it."""
    folder.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(folder)], check=True)
    try:
        yield folder / "ballast"
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(file: Path) -> None:
    free = os.statvfs(file.parent)
    file.write_bytes(bytes(free.f_bavail * free.f_frsize))
    assert os.statvfs(file.parent).f_bavail == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="a small file system is mounted")
async def test_where_the_volume_is_full_a_create_fails_with_a_code_of_its_own_and_it_goes_on_with_more_room(
    binary: Path, tmp_path: Path
) -> None:
    with (
        registry(tmp_path / "upstream", account=False) as upstream,
        registry(tmp_path / "private") as private,
        volume(tmp_path / "private" / "storage", 8 << 20) as ballast,
    ):
        async with place(binary, tmp_path, upstream, private, past_full=False) as real:
            await real.upstream.image("team/app", "1")
            fill(ballast)
            began_s = time.monotonic()
            problem = await real.refused("team/app:1")
            print(f"volume full: {problem.code} after {time.monotonic() - began_s:.1f} s")
            assert problem.code == "image_store_full"
            assert f"the private registry {private}" in problem.detail
            # Nothing of it counts as copied.
            ballast.unlink()
            await real.created("team/app:1")


@pytest.mark.skipif(os.geteuid() != 0, reason="a small file system is mounted")
async def test_where_the_volume_is_full_nodes_pull_from_upstream_and_what_nothing_needs_makes_room_at_once(
    binary: Path, tmp_path: Path
) -> None:
    storage = tmp_path / "private" / "storage"
    program = build_collector(tmp_path)
    large = {"data": random.randbytes(500_000)}
    with (
        registry(tmp_path / "upstream", account=False) as upstream,
        registry(tmp_path / "private") as private,
        volume(storage, 4 << 20) as ballast,
    ):
        async with (
            collecting(program, tmp_path, storage, settle=5_000, young=1_000, idle=1_000) as collector,
            place(binary, tmp_path, upstream, private, collector=collector.client) as real,
        ):
            for name in ("idle", "used", "next"):
                await real.upstream.archive(f"team/{name}", "1", large | {"name": name.encode()})
            _, used = await real.created("team/used:1")
            idle, gone = await real.created("team/idle:1")
            await real.plane.service.delete(OWNER, idle.id, wait_s=5)
            # Copied, and used last, a day ago.
            at_s = time.time() - 86_400
            for path in (storage / "docker").rglob("*"):
                if path.is_file():
                    os.utime(path, (at_s, at_s))
            fill(ballast)
            sandbox, image = await real.created("team/next:1")
            assert image == f"{upstream}/team/next:1@{sandbox.image_digest}"
            assert (sandbox.image_ran, sandbox.image_pulled, sandbox.image_pulled_why) == ("", "full", PAST_FULL)
            async with asyncio.timeout(60):
                while (again := await real.created("team/next:1"))[1].startswith(upstream):  # noqa: ASYNC110
                    await asyncio.sleep(1)
            assert again[1].startswith(private)
            # It has made room; what a sandbox runs from is there, whole.
            manifest = json.loads(await pulled(real, used))
            for layer in manifest["layers"]:
                name = parse(used).name.partition("/")[2]
                async with real.upstream.http.get(
                    f"http://{private}/v2/{name}/blobs/{layer['digest']}", headers=AUTH
                ) as answer:
                    assert answer.status == 200
            reference = parse(gone)
            url = f"http://{private}/v2/{reference.name.partition('/')[2]}/manifests/{reference.digest}"
            async with real.upstream.http.get(url, headers=AUTH) as answer:
                assert answer.status == 404


async def test_a_mirror_that_is_away_is_waited_for_as_long_as_the_start_may_take(real: Place) -> None:
    await real.upstream.image("team/app", "1")
    os.kill(real.mirror.pid, signal.SIGKILL)
    problem = await real.refused("team/app:1", timeout_ms=8_000)
    assert problem.code == "image_pull_failed"
    assert "the mirror does not answer" in problem.detail
