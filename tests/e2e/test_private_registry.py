"""Images by way of the release's own registry: copied once, started without their registry, and nobody else's."""

from __future__ import annotations

import asyncio
import hashlib
import ssl
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest

from controlplane.lifecycle.images.pins import PAST_FULL
from controlplane.registry import CollectorClient
from rollbox import Client, Sandbox
from rollbox.errors import ImageNotFound, ImagePullFailed, ImageStoreFull, SandboxError
from tests.cluster.layout import REGISTRY
from tests.cluster.settings import trusted
from tests.support.installed import ignores_policies, kubectl, own_cluster
from tests.support.odd_registry import LIMITED_S, LIMITED_TIMES, PASSWORD, USER, odd_registry
from tests.support.private_place import OWNED, Place, images, private_place, secret
from tests.support.waiting import until

# Of a release of their own.
pytestmark = [pytest.mark.images, pytest.mark.disrupts, pytest.mark.timeout(900)]
WITHIN_S = 180.0
# The registry measures itself every half a minute, and puts aside what it gives back for one.
MEASURED_WITHIN_S, COLLECTED_WITHIN_S = 60.0, 240.0
# In a row, so that every replica of the control plane has refused, with all likelihood.
REFUSALS = 8
SMALL: dict[str, Any] = {"cpu": (0.001, 1), "memory": ("32Mi", "128Mi"), "start_timeout": WITHIN_S}


@dataclass(frozen=True)
class Kept:
    """A sandbox that runs during all tests: the upstream name of its image, and what its pod was given."""

    id: str
    name: str
    image: str


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Place, asyncio.Runner]]:
    if not own_cluster():
        pytest.skip("a given cluster's nodes are not told of another registry by a test")
    with private_place(tmp_path_factory.mktemp("place")) as made:
        yield made


@pytest.fixture(scope="module")
def place(running: tuple[Place, asyncio.Runner]) -> Place:
    return running[0]


@pytest.fixture(scope="module")
def kept(running: tuple[Place, asyncio.Runner]) -> Kept:
    place, runner = running

    async def made() -> Kept:
        name = place.image("plain/kept")
        with place.open():
            async with Client(place.stack.url, place.stack.api_key) as client:
                sandbox = await client.create(name, **SMALL, lease=None)
        (image,) = await images(place.stack, sandbox.id)
        return Kept(sandbox.id, name, image)

    return runner.run(made())


@pytest.fixture
async def client(place: Place) -> AsyncIterator[Client]:
    async with Client(place.stack.url, place.stack.api_key) as made:
        yield made


async def layer_of(name: str, place: Place) -> str:
    """The digest of the one layer of an image."""
    repository, _, tag = name.removeprefix(f"{place.upstream}/").rpartition(":")
    accept = {"Accept": "application/vnd.oci.image.manifest.v1+json"}
    url = f"http://{REGISTRY}/v2/{repository}/manifests/{tag}"
    async with aiohttp.request("GET", url, headers=accept) as answer:
        manifest = await answer.json(content_type=None)
    return str(manifest["layers"][0]["digest"])


# -- peers ------------------------------------------------------------------------------------------------------------


async def test_a_nodes_layers_are_given_to_nodes_and_not_to_pods(place: Place, kept: Kept, client: Client) -> None:
    digest = await layer_of(kept.name, place)
    folder = place.folder / "peer"
    folder.mkdir()
    for file, content in (await secret(place.stack, f"{place.stack.release}-peers")).items():
        (folder / file).write_bytes(content)
    # containerd has asked it before the registry.
    await until(lambda: fetched_from_the_registry(place), 30)
    known, unknown = (ssl.create_default_context(cafile=str(folder / "ca.crt")) for _ in range(2))
    known.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    name = f"peers.{place.stack.release}.{place.stack.namespace}"
    peer = f"https://{place.address}:{place.ports.peers}/blobs/{digest}"
    async with aiohttp.ClientSession() as http:
        async with http.get(peer, ssl=known, server_hostname=name) as answer:
            layer = await answer.read()
        assert f"sha256:{hashlib.sha256(layer).hexdigest()}" == digest
        async with http.get(peer, ssl=known, server_hostname=name, headers={"Range": "bytes=100-299"}) as answer:
            assert (answer.status, await answer.read()) == (206, layer[100:300])
        with pytest.raises(aiohttp.ClientError):
            async with http.get(peer, ssl=unknown, server_hostname=name) as answer:
                await answer.read()
        local = (
            f"http://127.0.0.1:{place.ports.local}/v2/{kept.image.partition('/')[2].partition('@')[0]}/blobs/{digest}"
        )
        async with http.get(local) as answer:
            assert answer.status == 403
        shown = {"X-Rollbox-Peers": (folder / "token").read_text(), "Range": "bytes=100-299"}
        # A part of a layer cannot be told from something else, so the registry is to give it.
        async with http.get(local, headers=shown) as answer:
            assert answer.status == 404
    if ignores_policies():
        return
    sandbox = await client.connect(kept.id)
    reach = "timeout 5 nc -w 3 {} < /dev/null > /dev/null 2>&1; echo $?"
    # To itself it gets through, so there is a program that could.
    listens = f"nc -l -p 7777 > /dev/null & sleep 1; {reach.format('127.0.0.1 7777')}"
    busybox = "for one in nc timeout; do ln -sf /bin/busybox /bin/$one; done; "
    assert (await sandbox.exec(busybox + listens)).stdout == "0\n"
    tried = await sandbox.exec(reach.format(f"{place.address} {place.ports.peers}"))
    assert tried.stdout != "0\n"


async def fetched_from_the_registry(place: Place) -> bool:
    url = f"http://{place.address}:{place.ports.metrics}/metrics"
    text = (await asyncio.to_thread(lambda: urllib.request.urlopen(url, timeout=10).read())).decode()
    lines = [line for line in text.splitlines() if line.startswith('rollbox_peers_fetches_total{from="registry"}')]
    return bool(lines) and float(lines[0].split()[-1]) >= 1


# -- what its room is -------------------------------------------------------------------------------------------------


async def test_a_full_registry_says_so_gives_room_back_and_keeps_what_runs(
    place: Place, kept: Kept, client: Client
) -> None:
    async with place.collector() as collector:
        with place.open(), known_to_nodes(place.upstream):
            async with await client.create(place.image("plain/big", await place.bytes_to_full()), **SMALL) as sandbox:
                (big,) = await images(place.stack, sandbox.id)
            began_s = time.monotonic()
            await until(lambda: is_full(collector), MEASURED_WITHIN_S)
            print(f"full: noticed after {time.monotonic() - began_s:.1f} s")
            await place.aged()
            other, began_s = place.image("plain/other"), time.monotonic()
            with pytest.raises(ImageStoreFull) as full:
                await client.create(place.image(f"{OWNED}/image"), **SMALL)
            print(
                f"full: {full.value.code} ({full.value.fault}) after {time.monotonic() - began_s:.1f} s: {full.value}"
            )
            assert full.value.is_infra
            async with await client.create(other, **SMALL) as sandbox:
                record = await client.get(sandbox.id)
                assert (record.image_pulled_why, record.image_ran) == (PAST_FULL, "")
            await until(lambda: has_room(collector), COLLECTED_WITHIN_S)
            print(f"full: room again {time.monotonic() - began_s:.1f} s after it was said")
            assert not await collector.use(*place_of(big))
            assert await collector.use(*place_of(kept.image))
            assert (await (await client.connect(kept.id)).exec("echo alive")).stdout == "alive\n"
            async with await client.create(other, **SMALL) as sandbox:
                assert (await client.get(sandbox.id)).image_ran


def known_to_nodes(host: str) -> AbstractContextManager[None]:
    """Nodes pull from a registry without TLS while the block runs."""
    lines = (f'server = "http://{host}"', f'[host."http://{host}"]', '  capabilities = ["pull", "resolve"]')
    return trusted(host, "\n".join(lines), "")


async def is_full(collector: CollectorClient) -> bool:
    await asyncio.sleep(1)
    return (await collector.room()).full


async def has_room(collector: CollectorClient) -> bool:
    return not await is_full(collector)


def place_of(image: str) -> tuple[str, str]:
    """Repository and digest of a copy in the registry."""
    repository, _, digest = image.partition("/")[2].partition("@")
    return repository, digest


# -- what the mirror runs into ----------------------------------------------------------------------------------------

# By kinds of `OddRegistry`: the code, whose fault it is, and words of the detail.
COPIES = {
    "absent": ("image_not_found", "caller", ""),
    "private": ("image_not_found", "caller", ""),
    "away": ("image_pull_failed", "platform", ""),
    "old": ("unsupported", "caller", "schema 1"),
    "foreign": ("unsupported", "caller", "s390x"),
    "many": ("unsupported", "caller", "128 layers; a container needs 1 to 127"),
    "elsewhere": ("unsupported", "caller", "a layer that its registry does not hold"),
    "broken": ("image_pull_failed", "platform", "500"),
    "cut": ("image_pull_failed", "platform", ""),
    "lying": ("image_pull_failed", "platform", "checksum"),
    "silent": ("image_pull_failed", "platform", ""),
}


# Of these not even a digest is to be had, so without one in the name their nodes would be left to ask them.
BY_DIGEST = ("absent", "private", "away", "broken")


async def test_each_way_in_which_a_copy_goes_wrong_has_its_code(place: Place, client: Client) -> None:
    async with odd_registry(place.address, place.ports.odd) as registry:
        hosts = {"away": f"{place.address}:{place.ports.upstream}"}

        async def refused(kind: str) -> tuple[SandboxError, float]:
            by_digest = f"{hosts.get(kind, registry.host)}/{kind}@sha256:{'1' * 64}"
            began_s = time.monotonic()
            with pytest.raises(SandboxError) as caught:
                await client.create(by_digest if kind in BY_DIGEST else registry.image(kind), **SMALL)
            return caught.value, time.monotonic() - began_s

        told = dict(zip(COPIES, await asyncio.gather(*map(refused, COPIES)), strict=True))
    for kind, (error, took_s) in told.items():
        print(f"{kind}: {error.code} ({error.fault}) after {took_s:.1f} s: {error.detail}")
    for kind, (code, fault, words) in COPIES.items():
        error, _ = told[kind]
        assert (error.code, error.fault) == (code, fault), (kind, error)
        assert words in str(error.detail), (kind, error)


async def test_a_registry_that_limits_is_waited_for_and_no_node_asks_it(place: Place, client: Client) -> None:
    async with odd_registry(place.address, place.ports.odd) as registry:
        async with await client.create(registry.image("limited"), **SMALL) as sandbox:
            record = await client.get(sandbox.id)
            assert record.image_ran
            assert record.timings_ms["copy"] >= LIMITED_TIMES * LIMITED_S * 1000
            print("limited:", dict(record.timings_ms))
        assert registry.layers.count("limited") == LIMITED_TIMES + 1


async def test_credentials_that_have_expired_are_refused_until_they_are_renewed(place: Place, client: Client) -> None:
    async with odd_registry(place.address, place.ports.odd) as registry:
        name = registry.image("private")
        await place.credentials(f"{registry.host}/private", f"{USER}:expired")
        try:
            await _is_refused(client, name)
            assert not registry.layers
            await place.credentials(f"{registry.host}/private", f"{USER}:{PASSWORD}")
            async with await _once_secrets_are_read(client, name) as sandbox:
                assert (await client.get(sandbox.id)).image_ran
        finally:
            await place.credentials(f"{place.upstream}/{OWNED}")


# -- whose images they are --------------------------------------------------------------------------------------------


async def test_images_come_from_the_private_registry_and_are_their_owners(place: Place, client: Client) -> None:
    image = place.image("plain/app")
    await _comes_from_there_and_stays(place, client, image)
    await _is_its_owners(place, client, image)


async def _resolved(client: Client, name: str) -> bool:
    return (await client.preflight(name)).image == "elsewhere"


async def _comes_from_there_and_stays(place: Place, client: Client, name: str) -> None:
    stack = place.stack
    with place.open():
        # A registry that was away for an earlier test is not asked again for seconds, and starts do not wait for it.
        await until(lambda: _resolved(client, name))
        async with await client.create(name, **SMALL) as sandbox:
            assert (await sandbox.exec("echo copied")).stdout == "copied\n"
            record = await client.get(sandbox.id)
            (image,) = await images(stack, sandbox.id)
            assert image.endswith(f"@{record.image_ran}")
            assert "/mirror/" in image
            assert "copy" in record.timings_ms
            print("first start:", dict(record.timings_ms))
    # Its registry has gone.
    async with await client.create(name, **SMALL) as sandbox:
        assert (await sandbox.exec("echo again")).stdout == "again\n"
        assert await images(stack, sandbox.id) == [image]
    # And so has what this release's parts remember.
    parts = (f"deployment/{stack.release}-{part}" for part in ("controlplane", "mirror"))
    await kubectl("rollout", "restart", "-n", stack.namespace, *parts)
    # A create that finds no mirror lets the node ask upstream, by a name that it does not know as one without TLS.
    for part in ("controlplane", "mirror"):
        deployment = f"deployment/{stack.release}-{part}"
        await kubectl("rollout", "status", "-n", stack.namespace, deployment, "--timeout=180s")
    async with await client.create(name, **SMALL) as sandbox:
        assert (await sandbox.exec("echo after")).stdout == "after\n"
        record = await client.get(sandbox.id)
        assert record.image_stale
        assert await images(stack, sandbox.id) == [image]


async def _is_its_owners(place: Place, owner: Client, name: str) -> None:
    stack = place.stack
    with place.open(account=True):
        await place.credentials(place.upstream)
        async with (
            Client(stack.url, stack.strangers_key) as stranger,
            await _once_secrets_are_read(owner, name) as sandbox,
        ):
            assert (await sandbox.exec("echo mine")).stdout == "mine\n"
            (image,) = await images(stack, sandbox.id)
            for one in (name, image):
                await _is_refused(stranger, one)
            assert not [one for one in await stranger.list() if one.state == "running"]


async def _once_secrets_are_read(client: Client, image: str) -> Sandbox:
    """A change of a secret is noticed within a minute."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            try:
                return await client.create(image, **SMALL)
            except ImageNotFound:
                await asyncio.sleep(5)


async def _is_refused(client: Client, image: str) -> None:
    """Each replica of the control plane notices a change of a secret by itself, within a minute."""
    refusals = 0
    async with asyncio.timeout(WITHIN_S):
        while refusals < REFUSALS:
            try:
                async with await client.create(image, **SMALL):
                    refusals = 0
                    await asyncio.sleep(5)
            except ImageNotFound:
                refusals += 1
            except ImagePullFailed:
                # On a busy machine: the upstream registry has not answered the mirror in time, so the node asked it.
                await asyncio.sleep(1)
