"""Commits into a registry that knows an account alone: agents go through the mirror, and the account stays there."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from rollbox import Client
from rollbox.errors import Conflict
from tests.cluster.layout import CONTAINERD_SOCKET, RUN
from tests.cluster.layout import STATE as CLUSTER
from tests.cluster.settings import trusted
from tests.support.authority import Authority
from tests.support.commits import repository
from tests.support.images import IMAGE, REGISTRY
from tests.support.installed import BESIDE_ANOTHER, ONE_OF_EACH, Installed, apply, installed, node_address, own_cluster
from tests.support.private_registry import upstream
from tests.support.registry import HTPASSWD, registry_server
from tests.support.stack import free_port
from tests.support.waiting import until

pytestmark = [
    pytest.mark.images,
    pytest.mark.disrupts,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not own_cluster(), reason="a given cluster's nodes are not told of another registry by a test"),
]
RELEASE = "rollbox-external"
ACCOUNT = "user:password"


def _values(address: str, registry: str, images: str) -> tuple[str, ...]:
    return (
        *BESIDE_ANOTHER,
        *ONE_OF_EACH,
        "runtimeClass.create=true",
        f"runtimeClass.name={RELEASE}",
        "registry.enabled=true",
        f"registry.external.host={registry}",
        "registry.external.existingSecret=registry",
        "registry.external.ownAuthority=true",
        f"registry.commitPort={free_port(address)}",
        "registry.mirror.resources.requests.cpu=5m",
        "sandboxes.imagePullSecrets[0]=readers",
        f"sandboxes.images.plainHttpRegistries[0]={images}",
        f"sandboxes.images.rewrites[0]={REGISTRY}/* -> {images}/{REGISTRY.partition('/')[2]}/*",
        "nodeAgent.enabled=true",
        f"nodeAgent.containerd.socket={CONTAINERD_SOCKET}",
        f"nodeAgent.containerd.root={CLUSTER / 'containerd'}",
        f"nodeAgent.runsc.root={RUN / 'runsc/k8s.io'}",
    )


@asynccontextmanager
async def _release(folder: Path) -> AsyncIterator[Installed]:
    address = await node_address()
    registry, images = (f"{address}:{free_port(address)}" for _ in range(2))
    tls = Authority().write(folder / "tls", address)
    authority = (tls / "ca.crt").read_text()
    (folder / "htpasswd").write_text(HTPASSWD)
    served = {"addr": registry, "tls": {"certificate": str(tls / "tls.crt"), "key": str(tls / "tls.key")}}
    auth = {"htpasswd": {"realm": "r", "path": str(folder / "htpasswd")}}
    hosts = f'server = "https://{registry}"\n[host."https://{registry}"]\n  ca = "ca.crt"\n'
    account = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "registry", "namespace": RELEASE},
        "stringData": {"account": ACCOUNT, "ca.crt": authority},
    }
    shown = {"auths": {registry: {"auth": base64.b64encode(ACCOUNT.encode()).decode()}}}
    readers = {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/dockerconfigjson",
        "metadata": {"name": "readers", "namespace": f"{RELEASE}-sandboxes"},
        "stringData": {".dockerconfigjson": json.dumps(shown)},
    }
    with (
        upstream(folder / "upstream", address, int(images.rpartition(":")[2]), account=False),
        registry_server(folder, registry, http=served, auth=auth),
        trusted(registry, hosts, authority),
    ):
        await apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": RELEASE}})
        await apply(account, namespace=RELEASE)
        async with installed(RELEASE, *_values(address, registry, images)) as made:
            await apply(readers, namespace=made.sandboxes)
            yield made


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    with asyncio.Runner() as runner:
        installing = _release(tmp_path_factory.mktemp("external"))
        made = runner.run(installing.__aenter__())
        try:
            yield made
        finally:
            runner.run(installing.__aexit__(None, None, None))


async def test_an_image_and_a_checkpoint_of_it_go_there_and_come_back(client: Client) -> None:
    async with repository() as name:
        async with await client.create(IMAGE) as sandbox:
            await sandbox.exec("head -c 20000000 /dev/urandom > /large && sha256sum /large > /sum", check=True)
            image = await sandbox.commit(name)
        assert "/commits/" in image
        async with await client.create(image) as again:
            await again.exec("sha256sum -c /sum && echo more > /more", check=True)
            # The layer below is read, and becomes a part of the new one.
            here = await again.commit(checkpoint=True, ttl=600)
        async with await client.create(checkpoint=here) as branch:
            await branch.exec("sha256sum -c /sum && rm /large", check=True)
            further = await branch.commit(checkpoint=True, ttl=600)
        async with await client.create(checkpoint=further) as last:
            assert (await last.exec("cat /more; ls /large || true")).stdout == "more\n"
    for made in (here.id, further.id, str(image)):
        await until(partial(_removed, client, made))
    assert (await client.commits()).images == ()


async def _removed(client: Client, image: str) -> bool:
    """Whether it could be removed: what ran from it ends after its delete was answered."""
    try:
        return await client.remove_image(image)
    except Conflict:
        return False
