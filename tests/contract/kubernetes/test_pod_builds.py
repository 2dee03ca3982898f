"""Builds in pods, between a real registry and a builder that says what tests want it to say."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from controlplane.clock import SystemClock
from controlplane.cluster.kubernetes.api_server.client import KubernetesClient
from controlplane.cluster.kubernetes.builds import PodBuilds
from controlplane.cluster.kubernetes.builds.manifests import MANIFEST
from controlplane.cluster.kubernetes.builds.pods import BuildPods
from controlplane.cluster.kubernetes.node_agents.tokens import ISSUER, SERVICE
from controlplane.cluster.kubernetes.pods.podspec import PodDefaults
from controlplane.cluster.protocol.builds import BuildNetwork, BuildWish, Built
from controlplane.errors import Problem
from controlplane.images import PrivateRegistry, digest_of
from controlplane.settings import BuildSettings, CommitSettings
from tests.support.authority import Authority
from tests.support.fake_builder import FakeBuilder, fake_builder
from tests.support.fake_kubernetes import NAMESPACE, PODS, FakeKubernetes, fake_kubernetes
from tests.support.registry import Pusher, registry_server
from tests.support.stack import free_port

HOST = "registry.test:5443"
TARGET = f"{HOST}/commits/alice/builds:t1"
OCI_LAYER = "application/vnd.oci.image.layer.v1.tar"
DEFAULTS = PodDefaults(NAMESPACE, "r", "sidecar:1", "http://127.0.0.1:8082", "gvisor", 16)
SETTINGS = BuildSettings("builder:1", 2000, 1 << 30, 4 << 30, keep_ms=60_000)

# A build with one has a builder of its own.
SECRETS: Mapping[str, bytes] = {"s": b"secret"}


class Kubelet(FakeKubernetes):
    """Runs each pod at once; the builder knows its token."""

    builder: FakeBuilder
    # What a builder says that ends at its start; empty: it runs.
    says = ""

    async def put(self, kind: str, thing: dict[str, Any]) -> None:
        """Makes or replaces an object."""
        if kind == PODS and "status" not in thing:
            env = {one["name"]: one["value"] for one in thing["spec"]["containers"][0]["env"]}
            self.builder.token = env["ROLLBOX_BUILDER_TOKEN"]
            ended = {"terminated": {"reason": "Error", "exitCode": 1, "message": self.says}}
            failed = {"phase": "Failed", "containerStatuses": [{"name": "target", "state": ended}]}
            thing = {**thing, "status": failed if self.says else {"phase": "Running", "podIP": "127.0.0.1"}}
        await super().put(kind, thing)


@dataclass
class World:
    """A registry, an API server and a builder.

    Attributes:
        base: the digest of an image in `mirror/base`.
    """

    api: FakeKubernetes
    builds: PodBuilds
    builder: FakeBuilder
    pushed: Pusher
    base: str

    async def plan(self, dockerfile: str, *, owner: str = "alice", **names: str) -> Any:
        wish = BuildWish(dockerfile, {"A": "1"}, "", "sha256:context")
        plan = self.builds.plan(owner, wish)
        copies = {name: f"{HOST}/{names.get(name, f'mirror/base@{self.base}')}" for name in plan.images}
        return await self.builds.pin(plan, copies)

    async def built(
        self,
        dockerfile: str = "FROM base\nRUN x\n",
        *,
        max_bytes: int = 1000,
        network: BuildNetwork | None = None,
        secrets: Mapping[str, bytes] = SECRETS,
        owner: str = "alice",
    ) -> list[str | Built]:
        pinned = await self.plan(dockerfile, owner=owner)
        context = io.BytesIO(bytes(1024))
        steps = self.builds.run(pinned, TARGET, context, secrets, max_bytes=max_bytes, network=network)
        async with aclosing(steps) as told:
            return [one async for one in told]

    async def stored(self, path: str) -> bytes | None:
        url, headers = f"http://{self.pushed.address}/v2/{path}", {"Accept": f"{MANIFEST}, application/json"}
        async with self.pushed.http.get(url, headers=headers) as answer:
            return await answer.read() if answer.status == 200 else None

    async def tags(self) -> list[str]:
        told = await self.stored("commits/alice/builds/tags/list")
        return [] if told is None else json.loads(told)["tags"] or []


@asynccontextmanager
async def registries(folder: Path) -> AsyncIterator[tuple[str, CommitSettings, Path]]:
    """One store with an address that takes tokens, as the chart's own registry, and one that takes all."""
    tls, keys = Authority().write(folder / "tls", "localhost"), Authority().write(folder / "keys", "commits")
    at = f"127.0.0.1:{free_port('127.0.0.1')}"
    served = {"addr": at, "tls": {"certificate": str(tls / "tls.crt"), "key": str(tls / "tls.key")}}
    judged = {"realm": "https://localhost/", "service": SERVICE, "issuer": ISSUER}
    auth = {"token": {**judged, "rootcertbundle": str(keys / "tls.crt")}}
    store = {"filesystem": {"rootdirectory": str(folder / "storage")}, "delete": {"enabled": True}}
    (folder / "open").mkdir(parents=True)
    with registry_server(folder, at, http=served, auth=auth), registry_server(folder / "open", storage=store) as plain:
        yield plain, CommitSettings(f"localhost:{at.rpartition(':')[2]}", keys), tls / "ca.crt"


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with (
        registries(tmp_path / "r") as (plain, place, authority),
        fake_builder() as builder,
        fake_kubernetes(tmp_path, made=Kubelet) as api,
        KubernetesClient.connect(tmp_path / "kubeconfig", SystemClock()) as client,
        aiohttp.ClientSession() as http,
    ):
        assert isinstance(api, Kubelet)
        api.builder = builder
        pods = BuildPods(client, DEFAULTS, SETTINGS, SystemClock(), port=builder.port)
        builds = PodBuilds(
            pods,
            PrivateRegistry(HOST),
            place,
            authority,
            architectures=lambda: {"amd64"},
            cached=["pypi.org"],
            clock=SystemClock(),
        )
        pushed = Pusher(http, plain, {})
        yield World(api, builds, builder, pushed, await pushed.image("mirror/base", "x"))


async def layers_of_base(world: World) -> list[dict[str, Any]]:
    text = await world.stored(f"mirror/base/manifests/{world.base}")
    assert text is not None
    return list(json.loads(text)["layers"])


async def test_what_a_build_reads_is_brought_and_what_it_made_is_taken(world: World) -> None:
    below = await layers_of_base(world)
    world.builder.makes({b"new": "+gzip"}, *below)
    *said, made = await world.built()
    assert isinstance(made, Built)
    assert made.size_bytes == 3
    assert "#1 RUN\n" in said
    # Manifest, configuration and layer of the base, by what they are.
    assert {digest_of(content) for content in world.builder.brought.values()} == {*world.builder.brought}
    assert len(world.builder.brought) == 3
    told = json.loads(world.builder.files["mark/wish.json"])
    assert told == {
        "target": "",
        "arguments": {"A": "1"},
        "network": False,
        "bases": {"rollbox/0": world.base},
        "secrets": {"s": "secret-0"},
        "files": False,
        "fetched": [],
    }
    assert world.builder.files["mark/Dockerfile"] == b"FROM rollbox/0 AS rollbox-0\nRUN x\n"
    assert world.builder.files["mark/secret-0"] == b"secret"
    # The image, by its tag and by one that a later image with this tag does not take.
    manifest = await world.stored(f"commits/alice/builds/manifests/{made.digest}")
    assert manifest is not None
    assert digest_of(manifest) == made.digest
    assert sorted(await world.tags()) == sorted(["t1", f"id-{made.digest.removeprefix('sha256:')}"])
    for one in json.loads(manifest)["layers"]:
        assert await world.stored(f"commits/alice/builds/blobs/{one['digest']}") is not None
    assert json.loads(manifest)["annotations"] == {"dev.rollbox.own-bytes": "3"}
    assert world.api.objects[PODS] == {}


async def test_a_pod_of_a_build_has_no_rights_and_no_network(world: World) -> None:
    world.builder.lines, world.builder.endless = [{"text": "begun\n"}], True
    pinned = await world.plan("FROM base\n")
    async with aclosing(world.builds.run(pinned, TARGET, io.BytesIO(bytes(1024)), {}, max_bytes=9)) as told:
        async for text in told:
            if text == "begun\n":
                break
        (pod,) = world.api.objects[PODS].values()
    spec = pod["spec"]
    assert (spec["runtimeClassName"], spec["restartPolicy"], spec["automountServiceAccountToken"]) == (
        "gvisor",
        "Never",
        False,
    )
    assert spec["dnsConfig"]["nameservers"] == ["127.0.0.1"]
    (container,) = spec["containers"]
    assert container["securityContext"]["privileged"] is False
    assert "NET_RAW" in container["securityContext"]["capabilities"]["drop"]
    assert {*container["resources"]["limits"]} == {"cpu", "memory", "ephemeral-storage"}
    assert all("emptyDir" in one for one in spec["volumes"])
    # No policy of sandboxes selects it, and no list of sandboxes has it.
    assert pod["metadata"]["labels"]["app.kubernetes.io/name"] == "rollbox-builder"
    assert "rollbox.dev/sandbox" not in pod["metadata"]["labels"]
    # It has nothing of the registry's.
    assert "localhost" not in json.dumps(pod)
    # Whoever leaves a build ends it.
    assert world.api.objects[PODS] == {}


async def test_a_builder_gets_no_layer_by_its_digest(world: World) -> None:
    stolen = await world.pushed.archive("commits/bob/private", "x", {"secret": b"of bob"})
    manifest = await world.stored(f"commits/bob/private/manifests/{stolen}")
    assert manifest is not None
    (layer,) = json.loads(manifest)["layers"]
    world.builder.makes({}, {**layer, "mediaType": f"{OCI_LAYER}+gzip"})
    with pytest.raises(Problem):
        await world.built()
    assert f"GET /blobs/{layer['digest']}" in world.builder.asked
    assert await world.stored(f"commits/alice/builds/blobs/{layer['digest']}") is None
    assert await world.tags() == []


@pytest.mark.parametrize(
    ("lines", "code", "said"),
    [
        ([{"reason": "step", "why": "exit code: 3"}], "build_failed", "exit code: 3"),
        ([{"reason": "address", "why": "the answer is 403", "line": 3}], "build_failed", "built: the answer is 403"),
        ([{"reason": "size", "why": "more than it may fetch"}], "payload_too_large", "more than"),
        ([{"reason": "egress", "why": "503 away"}], "egress_unavailable", "503 away"),
        ([{"reason": "room", "why": "no space left"}], "build_failed", "may have 4294967296 bytes"),
        ([{"reason": "builder", "why": "runc is gone"}], "internal", "runc is gone"),
        ([{"image": {"layers": []}}], "internal", "no image"),
        ([{"image": None, "text": "x"}], "upstream_timeout", "its builder has ended"),
    ],
)
async def test_a_build_that_fails_leaves_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, lines: list[dict[str, Any]], code: str, said: str
) -> None:
    monkeypatch.setattr("controlplane.cluster.kubernetes.builds.looks.REASON_WITHIN_S", 0.1)
    world.builder.lines = lines
    with pytest.raises(Problem, match=said) as failed:
        await world.built()
    assert failed.value.code == code
    assert (await world.tags(), world.api.objects[PODS]) == ([], {})


async def test_a_builder_that_ends_at_its_start_is_told_with_its_last_words(world: World) -> None:
    assert isinstance(world.api, Kubelet)
    world.api.says = "a line before\nno worker found\n"
    with pytest.raises(
        Problem, match=r"did not start: .* exit code 1 \(Error\); its last words: no worker found$"
    ) as failed:
        await world.built()
    assert failed.value.code == "sandbox_lost"
    assert (await world.tags(), world.api.objects[PODS]) == ([], {})


async def killed(world: World) -> None:
    """The kernel ends the builder once it builds."""
    await world.builder.begun.wait()
    (name,) = world.api.objects[PODS]
    ended = {"name": "target", "state": {"terminated": {"reason": "OOMKilled", "exitCode": 137}}}
    await world.api.patch_status(name, phase="Failed", containerStatuses=[ended])


async def test_a_builder_that_took_too_much_memory_says_so(world: World) -> None:
    world.builder.lines = [{"text": "x"}]
    kernel = asyncio.create_task(killed(world))
    with pytest.raises(Problem, match="more memory than the 1073741824 bytes") as failed:
        await world.built()
    await kernel
    assert (failed.value.code, failed.value.details["reason"]) == ("build_failed", "build_out_of_memory")


async def test_what_is_too_large_is_not_taken(world: World) -> None:
    world.builder.makes({b"x" * 11: ""})
    with pytest.raises(Problem) as failed:
        await world.built(max_bytes=10)
    assert (failed.value.code, await world.tags()) == ("payload_too_large", [])
    # One that says less than it sends.
    (layer,) = world.builder.makes({b"x" * 11: ""})["layers"]
    layer["size"] = 5
    with pytest.raises(Problem):
        await world.built(max_bytes=10)
    assert await world.tags() == []


async def test_a_tag_is_of_what_images_are(world: World) -> None:
    first = await world.plan("FROM base\nCOPY --from=other /a /b\n")
    assert first.dockerfile() == "FROM rollbox/0 AS rollbox-0\nCOPY --from=rollbox/1 /a /b\n"
    other = await world.pushed.image("mirror/base", "y", mark="another")
    second = await world.plan("FROM base\nCOPY --from=other /a /b\n", other=f"mirror/base@{other}")
    assert first.tag != second.tag
    assert first.tag == (await world.plan("FROM base\nCOPY --from=other /a /b\n")).tag
    many = await world.pushed.index("mirror/base", "z", {"arm64": other, "amd64": world.base})
    assert (await world.plan("FROM base\n", base=f"mirror/base@{many}")).tag == (await world.plan("FROM base\n")).tag


async def test_what_is_added_from_an_address_is_the_builders_to_fetch(world: World) -> None:
    checksum = f"sha256:{'0' * 64}"
    dockerfile = f"FROM base\nADD --checksum={checksum} https://a.test/x /x\nCOPY <<EOF /y\ny\nEOF\n"
    assert (await world.plan(dockerfile)).addresses == ["https://a.test/x"]
    world.builder.makes({b"new": "+gzip"})
    await world.built(dockerfile)
    told = json.loads(world.builder.files["mark/wish.json"])
    (fetched,) = told["fetched"]
    path = fetched.pop("path")
    assert fetched == {"address": "https://a.test/x", "checksum": checksum, "line": 2}
    assert told["files"] is True
    assert f"--from=rollbox/files {path} /x" in world.builder.files["mark/Dockerfile"].decode()
    assert f"mark/files/{path}" not in world.builder.files, "nothing stands in for what is fetched"
    assert b"y\n" in world.builder.files.values()


async def test_a_plan_knows_whether_a_step_is_to_have_no_network(world: World) -> None:
    assert (await world.plan("FROM base\nRUN --network=none x\n")).is_closed
    assert not (await world.plan("FROM base\nRUN --network=default x\n")).is_closed


async def test_what_has_no_copy_is_refused(world: World) -> None:
    plan = world.builds.plan("alice", BuildWish("FROM a\n", {}, "", ""))
    for name in ("docker.io/library/a:1", f"{HOST}/mirror/a:1"):
        with pytest.raises(Problem) as refused:
            await world.builds.pin(plan, {"a": name})
        assert refused.value.code == "unsupported"


async def test_pods_that_nobody_waits_for_are_removed(world: World) -> None:
    label = {"rollbox.dev/build": "true"}
    for name, phase, at, labels in (
        ("left", "Succeeded", "2026-01-01T00:00:00Z", label),
        ("runs", "Running", "2026-01-01T00:00:00Z", label),
        ("fresh", "Failed", "2126-01-01T00:00:00Z", label),
        ("sandbox", "Failed", "2026-01-01T00:00:00Z", {}),
    ):
        about = {"name": name, "creationTimestamp": at, "labels": labels}
        await world.api.put(PODS, {"metadata": about, "status": {"phase": phase}})
    async with world.builds.keeping():
        pass
    assert {*world.api.objects[PODS]} == {"runs", "fresh", "sandbox"}


async def test_the_next_build_of_an_owner_has_the_builder_of_the_last_one(world: World) -> None:
    world.builder.makes({b"new": "+gzip"})
    async with world.builds.keeping():
        await world.built(secrets={})
        (first,) = world.api.objects[PODS]
        assert len(world.builder.brought) == 3
        world.builder.brought.clear()
        await world.built(secrets={})
        assert ({*world.api.objects[PODS]}, world.builder.brought) == ({first}, {})
        # Another owner has another one, and so has what may reach something.
        await world.built(secrets={}, owner="bob")
        assert len(world.api.objects[PODS]) == 2
        # Secrets are where no other build is.
        await world.built()
        assert len(world.api.objects[PODS]) == 2
        world.builder.lines = [{"reason": "step", "why": "exit code: 3"}]
        with pytest.raises(Problem, match="exit code: 3"):
            await world.built(secrets={})
        assert first not in world.api.objects[PODS], "one in which a build has failed is not used again"
    assert world.api.objects[PODS] == {}


@pytest.mark.parametrize(
    "ends", [{"reason": "room", "why": "no space left"}, {"reason": "builder", "why": "runc is gone"}, {"text": "cut"}]
)
async def test_what_an_earlier_build_may_have_spoilt_is_built_in_a_new_builder(
    world: World, ends: dict[str, Any]
) -> None:
    world.builder.makes({b"new": "+gzip"})
    async with world.builds.keeping():
        await world.built(secrets={})
        (first,) = world.api.objects[PODS]
        world.builder.only_first = [ends]
        *said, made = await world.built(secrets={})
        assert isinstance(made, Built)
        assert "once more, in a builder of its own\n" in said
        assert first not in world.api.objects[PODS]


async def test_a_builder_that_is_full_or_gone_is_not_used_again(world: World) -> None:
    world.builder.makes({b"new": "+gzip"})
    async with world.builds.keeping():
        await world.built(secrets={})
        (first,) = world.api.objects[PODS]
        world.builder.full = {world.builder.token}
        await world.built(secrets={})
        assert first not in world.api.objects[PODS]
        world.builder.full = {world.builder.token}
        (second,) = world.api.objects[PODS]
        await world.built(secrets={})
        assert second not in world.api.objects[PODS]


async def test_a_builder_that_hangs_is_not_used_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.builder.makes({b"new": "+gzip"})
    async with world.builds.keeping():
        await world.built(secrets={})
        (first,) = world.api.objects[PODS]
        monkeypatch.setattr("controlplane.cluster.kubernetes.builds.builder.READY_S", 0.5)
        world.builder.hangs = {world.builder.token}
        assert isinstance((await world.built(secrets={}))[-1], Built)
        assert first not in world.api.objects[PODS]
