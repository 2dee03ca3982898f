"""The images that were made of sandboxes, as a real registry lists and removes them."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import aiohttp
import pytest

from controlplane.cluster.kubernetes.node_agents.kept import KeptImages
from controlplane.errors import Problem
from controlplane.images import PrivateRegistry
from controlplane.settings import PushSettings
from tests.support.authority import Authority
from tests.support.registry import CONFIG, HTPASSWD, LAYER, MANIFEST, digest, registry_server
from tests.support.stack import free_port

HOST = "registry.internal:5443"
CREATED = "2023-11-14T22:13:20.123456789Z"
CREATED_MS = 1_700_000_000_123


class Registry:
    """A registry with an account and a certificate, as the chart's is."""

    def __init__(self, address: str, http: aiohttp.ClientSession, push: PushSettings) -> None:
        self.address = address
        self.http = http
        self.push = push

    async def image(self, repository: str, layers: Sequence[bytes], *tags: str) -> str:
        """Pushes an image with these tags, and that of its own; its digest."""
        config = json.dumps({"created": CREATED, "rootfs": {"diff_ids": [digest(one) for one in layers]}}).encode()
        for blob in (config, *layers):
            begun = await self.http.post(f"https://{self.address}/v2/{repository}/blobs/uploads/")
            end = f"{begun.headers['Location']}&digest={digest(blob)}"
            assert (await self.http.put(end, data=blob)).status == 201
        parts = [{"mediaType": LAYER, "digest": digest(one), "size": len(one)} for one in layers]
        about = {"mediaType": CONFIG, "digest": digest(config), "size": len(config)}
        body = {"schemaVersion": 2, "mediaType": MANIFEST, "config": about, "layers": parts}
        manifest = json.dumps(body).encode()
        for tag in (f"id-{digest(manifest).partition(':')[2]}", *tags):
            url = f"https://{self.address}/v2/{repository}/manifests/{tag}"
            assert (await self.http.put(url, data=manifest, headers={"Content-Type": MANIFEST})).status == 201
        return digest(manifest)


@pytest.fixture
async def registry(tmp_path: Path) -> AsyncIterator[Registry]:
    tls = Authority().write(tmp_path / "tls", "localhost")
    (tmp_path / "htpasswd").write_text(HTPASSWD)
    (tmp_path / "account").write_text("user:password")
    at = f"127.0.0.1:{free_port('127.0.0.1')}"
    served = {"addr": at, "tls": {"certificate": str(tls / "tls.crt"), "key": str(tls / "tls.key")}}
    auth = {"htpasswd": {"realm": "r", "path": str(tmp_path / "htpasswd")}}
    address = f"localhost:{at.rpartition(':')[2]}"
    trusted = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=tls / "ca.crt"))
    account = {"Authorization": aiohttp.encode_basic_auth("user", "password")}
    with registry_server(tmp_path, at, http=served, auth=auth):
        async with aiohttp.ClientSession(connector=trusted, headers=account) as http:
            yield Registry(address, http, PushSettings(address, tmp_path / "account", tls / "ca.crt"))


async def test_an_owners_images_with_what_they_are_built_on(registry: Registry) -> None:
    kept = KeptImages(PrivateRegistry(HOST), registry.push)
    assert list(await kept.list(f"{HOST}/commits/alice")) == []
    first = await registry.image("commits/alice/repo", [b"base", b"first"], "v1")
    moved = await registry.image("commits/alice/repo", [b"base", b"moved"], "v2")
    second = await registry.image("commits/alice/other", [b"base", b"first", b"second!"], "latest", "same")
    current = await registry.image("commits/alice/repo", [b"base", b"current"], "v2")
    for other in ("commits/alice-b/repo", "commits/alicia/repo", "commits/a/repo", "mirror/commits/alice/repo"):
        await registry.image(other, [b"base", b"theirs"], "v1")
    found = {one.digest: one for one in await kept.list(f"{HOST}/commits/alice")}
    assert set(found) == {first, moved, second, current}
    assert {one.created_at_ms for one in found.values()} == {CREATED_MS}
    assert [found[one].tags for one in (first, moved, current, second)] == [("v1",), (), ("v2",), ("latest", "same")]
    assert found[second].name == f"{HOST}/commits/alice/other"
    assert (found[second].size_bytes, found[second].built_on, found[first].built_on) == (7, (first,), ())
    await kept.remove(found[first])
    await kept.remove(found[first])
    left = {one.digest: one for one in await kept.list(f"{HOST}/commits/alice")}
    assert set(left) == {moved, second, current}
    assert left[second].built_on == ()


async def test_a_registry_that_is_away_or_refuses_is_named(registry: Registry, tmp_path: Path) -> None:
    (tmp_path / "account").write_text("user:wrong")
    kept = KeptImages(PrivateRegistry(HOST), registry.push)
    with pytest.raises(Problem, match="localhost") as refused:
        await kept.list(f"{HOST}/commits/alice")
    assert refused.value.code == "upstream_timeout"
    away = PushSettings("localhost:1", tmp_path / "account", None)
    with pytest.raises(Problem) as failed:
        await KeptImages(PrivateRegistry(HOST), away).list(f"{HOST}/commits/alice")
    assert failed.value.code == "upstream_timeout"
