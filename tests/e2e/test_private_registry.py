"""Images by way of the release's own registry: copied once, started without their registry, and nobody else's."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from rollbox import Client, Sandbox
from rollbox.errors import ImageNotFound, ImagePullFailed
from tests.cluster.settings import trusted
from tests.support.images import IMAGE, REGISTRY
from tests.support.installed import (
    BESIDE_ANOTHER,
    OWNERS,
    Installed,
    apply,
    installed,
    kubectl,
    node_address,
    own_cluster,
)
from tests.support.private_registry import told, upstream, values
from tests.support.stack import free_port

RELEASE = "rollbox-registry"
WITHIN_S = 180.0
# In a row, so that every replica of the control plane has refused, with all likelihood.
REFUSALS = 8


@dataclass(frozen=True)
class Place:
    """A release with a private registry, and how to reach an upstream registry that nodes do not know."""

    stack: Installed
    image: str
    upstream_port: int
    folder: Path


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    if not own_cluster():
        pytest.skip("a given cluster's nodes are not told of another registry by a test")
    address = await node_address()
    pull, push, other = (free_port(address) for _ in range(3))
    chosen = (
        *BESIDE_ANOTHER,
        *values(address, pull, push, other),
        f"sandboxes.ownerPullSecrets.{OWNERS[0]}[0]=private",
    )
    repository, _, tag = IMAGE.removeprefix(f"{REGISTRY.partition('/')[0]}/").rpartition(":")
    async with installed(RELEASE, *chosen) as stack:
        await _credentials(stack, f"{address}:{other}/nothing-else")
        with trusted(*await told(stack)):
            yield Place(stack, f"{address}:{other}/{repository}:{tag}", other, tmp_path / "upstream")


async def _credentials(stack: Installed, place: str) -> None:
    """The first owner's own credentials, for this registry or repository."""
    auths = {"auths": {place: {"auth": base64.b64encode(b"user:password").decode()}}}
    body = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "private"},
        "type": "kubernetes.io/dockerconfigjson",
        "stringData": {".dockerconfigjson": json.dumps(auths)},
    }
    await apply(body, namespace=stack.sandboxes)


async def images(stack: Installed, sandbox_id: str) -> list[str]:
    """What the pod of a sandbox was given, its sidecar left out."""
    pod = json.loads(await kubectl("get", "pod", sandbox_id, "-n", stack.sandboxes, "-o", "json"))
    return [one["image"] for one in pod["spec"]["containers"] if one["name"] != "sidecar"]


@pytest.mark.disrupts
@pytest.mark.timeout(900)
async def test_images_come_from_the_private_registry_and_are_their_owners(place: Place) -> None:
    # One release for both: an install takes longer than either.
    await _comes_from_there_and_stays(place)
    await _is_its_owners(place)


async def _comes_from_there_and_stays(place: Place) -> None:
    stack, address = place.stack, await node_address()
    async with Client(stack.url, stack.api_key) as client:
        with upstream(place.folder, address, place.upstream_port, account=False):
            async with await client.create(place.image, memory="128Mi", start_timeout=WITHIN_S) as sandbox:
                assert (await sandbox.exec("echo copied")).stdout == "copied\n"
                record = await client.get(sandbox.id)
                (image,) = await images(stack, sandbox.id)
                assert image.endswith(f"@{record.image_ran}")
                assert "/mirror/" in image
                assert "copy" in record.timings_ms
                print("first start:", dict(record.timings_ms))
        # Its registry has gone.
        async with await client.create(place.image, memory="128Mi", start_timeout=WITHIN_S) as sandbox:
            assert (await sandbox.exec("echo again")).stdout == "again\n"
            assert await images(stack, sandbox.id) == [image]
        # And so has what this release's parts remember.
        await kubectl(
            "rollout",
            "restart",
            "-n",
            stack.namespace,
            *(f"deployment/{stack.release}-{part}" for part in ("controlplane", "mirror")),
        )
        # A create that finds no mirror lets the node ask upstream, by a name that it does not know as one without TLS.
        for part in ("controlplane", "mirror"):
            await kubectl(
                "rollout", "status", "-n", stack.namespace, f"deployment/{stack.release}-{part}", "--timeout=180s"
            )
        async with await client.create(place.image, memory="128Mi", start_timeout=WITHIN_S) as sandbox:
            assert (await sandbox.exec("echo after")).stdout == "after\n"
            record = await client.get(sandbox.id)
            assert record.image_stale
            assert await images(stack, sandbox.id) == [image]


async def _is_its_owners(place: Place) -> None:
    stack, address = place.stack, await node_address()
    with upstream(place.folder, address, place.upstream_port, account=True):
        await _credentials(stack, f"{address}:{place.upstream_port}")
        async with Client(stack.url, stack.api_key) as owner, Client(stack.url, stack.strangers_key) as stranger:
            sandbox = await _once_secrets_are_read(owner, place.image)
            async with sandbox:
                assert (await sandbox.exec("echo mine")).stdout == "mine\n"
                (image,) = await images(stack, sandbox.id)
                for name in (place.image, image):
                    await _is_refused(stranger, name)
                assert not [one for one in await stranger.list() if one.state == "running"]


async def _once_secrets_are_read(client: Client, image: str) -> Sandbox:
    """A change of a secret is noticed within a minute."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            try:
                return await client.create(image, memory="128Mi", start_timeout=WITHIN_S)
            except ImageNotFound:
                await asyncio.sleep(5)


async def _is_refused(client: Client, image: str) -> None:
    """Each replica of the control plane notices a change of a secret by itself, within a minute."""
    refusals = 0
    async with asyncio.timeout(WITHIN_S):
        while refusals < REFUSALS:
            try:
                async with await client.create(image, memory="128Mi"):
                    refusals = 0
                    await asyncio.sleep(5)
            except ImageNotFound:
                refusals += 1
            except ImagePullFailed:
                # On a busy machine: the upstream registry has not answered the mirror in time, so the node asked it.
                await asyncio.sleep(1)
