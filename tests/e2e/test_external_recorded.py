"""Recorded copies in a registry that somebody else looks after: those that no start is given any more are removed."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

import aiohttp
import pytest

from rollbox import Client
from tests.cluster.layout import (
    CONTAINERD_SOCKET,
    LAZY_PORT,
    LAZY_REGISTRY,
    LAZY_RELEASE,
    REGISTRY,
    RUN,
    SNAPSHOTTER_SOCKET,
    STATE,
)
from tests.cluster.settings import trusted
from tests.e2e.test_lazy import pushed
from tests.e2e.test_lazy_starts import knows_the_registry, started
from tests.support.authority import Authority
from tests.support.installed import (
    BESIDE_ANOTHER,
    ONE_OF_EACH,
    Installed,
    apply,
    installed,
    kubectl,
    node_address,
    objects,
    own_cluster,
)
from tests.support.private_place import images
from tests.support.private_registry import upstream
from tests.support.registry import HTPASSWD, MANIFEST, registry_server
from tests.support.stack import free_port
from tests.support.waiting import until

pytestmark = [
    pytest.mark.images,
    pytest.mark.disrupts,
    pytest.mark.lazily,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not own_cluster(), reason="a given cluster's nodes are not told of another registry by a test"),
]
ACCOUNT = "user:password"
# A replica that has begun anew takes the turn of the one that has ended, and then waits until it knows what runs.
REMOVED_WITHIN_S = 180.0
# The store's notes of all uses of copies become those of long ago; the rest of each note stays.
AGE = """
for _, key in ipairs(redis.call('KEYS', '*note:copy-use:*')) do
  redis.call('HSET', key, 'text', (redis.call('HGET', key, 'text'):gsub('^%d+', '1')))
end
return #redis.call('KEYS', '*note:copy-use:*')
"""


def _values(upstream_of_all: str, runtime_class: str) -> tuple[str, ...]:
    return (
        *BESIDE_ANOTHER,
        *ONE_OF_EACH,
        f"runtimeClass.create={runtime_class}",
        "lazyPulling.enabled=true",
        f"lazyPulling.folder={SNAPSHOTTER_SOCKET.parent}",
        "registry.enabled=true",
        f"registry.external.host={LAZY_REGISTRY}",
        "registry.external.existingSecret=registry",
        "registry.external.ownAuthority=true",
        "registry.mirror.resources.requests.cpu=5m",
        f"registry.commitPort={free_port(upstream_of_all.partition(':')[0])}",
        "sandboxes.imagePullSecrets[0]=readers",
        f"sandboxes.images.plainHttpRegistries[0]={upstream_of_all}",
        "nodeAgent.enabled=true",
        f"nodeAgent.containerd.socket={CONTAINERD_SOCKET}",
        f"nodeAgent.containerd.root={STATE / 'containerd'}",
        f"nodeAgent.runsc.root={RUN / 'runsc/k8s.io'}",
    )


def _pods_find_it(address: str) -> tuple[dict[str, object], ...]:
    """The name by which nodes mount its images leads pods to the registry, which is on the node."""
    name = LAZY_REGISTRY.partition(".")[0]
    port = {"name": "registry", "port": LAZY_PORT}
    return (
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name},
            "spec": {"clusterIP": "None", "ports": [port]},
        },
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": name, "labels": {"kubernetes.io/service-name": name}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [address]}],
            "ports": [port],
        },
    )


@asynccontextmanager
async def _release(folder: Path) -> AsyncIterator[tuple[Installed, str, str]]:
    """A release, the address of the registry, and that of the one where images come from."""
    await knows_the_registry()
    address = await node_address()
    registry, others = f"{address}:{LAZY_PORT}", f"{address}:{free_port(address)}"
    tls = Authority().write(folder / "tls", LAZY_REGISTRY.partition(":")[0], address)
    authority = (tls / "ca.crt").read_text()
    (folder / "htpasswd").write_text(HTPASSWD)
    served = {"addr": registry, "tls": {"certificate": str(tls / "tls.crt"), "key": str(tls / "tls.key")}}
    auth = {"htpasswd": {"realm": "r", "path": str(folder / "htpasswd")}}
    hosts = f'server = "https://{registry}"\n[host."https://{registry}"]\n  ca = "ca.crt"\n'
    shown = {"auths": {LAZY_REGISTRY: {"auth": base64.b64encode(ACCOUNT.encode()).decode()}}}
    classes = {one["metadata"]["name"] for one in await objects("runtimeclasses")}
    with (
        upstream(folder / "upstream", address, int(others.rpartition(":")[2]), account=False),
        registry_server(folder, registry, http=served, auth=auth),
        trusted(LAZY_REGISTRY, hosts, authority, ACCOUNT),
    ):
        await apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": LAZY_RELEASE}})
        await apply(
            *_pods_find_it(address),
            _secret("registry", account=ACCOUNT, **{"ca.crt": authority}),
            namespace=LAZY_RELEASE,
        )
        async with installed(LAZY_RELEASE, *_values(others, str("gvisor-lazy" not in classes).lower())) as stack:
            readers = _secret("readers", **{".dockerconfigjson": json.dumps(shown)})
            await apply({**readers, "type": "kubernetes.io/dockerconfigjson"}, namespace=stack.sandboxes)
            yield stack, registry, others


def _secret(name: str, **content: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": content}


async def test_what_a_later_list_took_the_place_of_is_removed_by_the_registrys_api_and_the_later_one_stays(
    tmp_path: Path,
) -> None:
    async with _release(tmp_path) as (stack, registry, others), Client(stack.url, stack.api_key) as client:
        name = pushed(tmp_path, "plain/lazy").replace(REGISTRY, others)
        common = (await client.convert(name)).ran
        first = (await client.convert(name, first=["/srv/0"])).ran
        second = (await client.convert(name, first=["/srv/3"])).ran
        async with await started(client, name, "lazy") as sandbox:
            (ran,) = await images(stack, sandbox.id)
            repository, _, digest = ran.removeprefix(f"{LAZY_REGISTRY}/").partition("@")
            assert digest == second
            found = Repository(f"https://{registry}/v2/{repository}", tmp_path / "tls/ca.crt")
            assert [await found.has(one) for one in (common, first, second)] == [True] * 3
            await _age(stack)
            await kubectl("rollout", "restart", f"deployment/{stack.release}-controlplane", "-n", stack.namespace)
            await until(lambda: found.lacks(first), REMOVED_WITHIN_S)
            assert [await found.has(one) for one in (common, second)] == [True] * 2
            assert (await sandbox.exec("cat /srv/* | md5sum")).ok
        async with await started(client, name, "lazy") as again:
            assert (await again.exec("cat /srv/* | md5sum")).ok
            assert (await client.get(again.id)).image_ran == second


@dataclass(frozen=True)
class Repository:
    """One repository of the registry, asked beside the platform."""

    url: str
    authority: Path

    async def has(self, digest: str) -> bool:
        """Whether it has an image."""
        trusts = ssl.create_default_context(cafile=str(self.authority))
        shown = base64.b64encode(ACCOUNT.encode()).decode()
        headers = {"Accept": MANIFEST, "Authorization": f"Basic {shown}"}
        url = f"{self.url}/manifests/{digest}"
        async with aiohttp.ClientSession() as http, http.head(url, headers=headers, ssl=trusts) as answer:
            assert answer.status in {HTTPStatus.OK, HTTPStatus.NOT_FOUND}, answer.status
            return answer.status == HTTPStatus.OK

    async def lacks(self, digest: str) -> bool:
        """Whether an image is gone; for ``until``."""
        await asyncio.sleep(1)
        return not await self.has(digest)


async def _age(stack: Installed) -> None:
    """All copies were used last long ago."""
    (redis,) = await stack.pods("redis")
    shell = 'redis-cli ${REDIS_PASSWORD:+-a "$REDIS_PASSWORD"} --no-auth-warning EVAL "$0" 0'
    said = await kubectl("exec", "-n", stack.namespace, redis, "--", "sh", "-c", shell, AGE)
    assert int(said) > 0, said
