"""A release beside another one, with node agents and a private registry: where images are made of sandboxes."""

from __future__ import annotations

import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Final

from tests.cluster.layout import CONTAINERD_SOCKET, ETC, RUN
from tests.cluster.layout import STATE as CLUSTER
from tests.cluster.settings import trusted
from tests.support.images import REGISTRY
from tests.support.installed import BESIDE_ANOTHER, ONE_OF_EACH, Installed, installed, node_address
from tests.support.peers import front
from tests.support.private_registry import told, upstream, values
from tests.support.stack import free_port

# Values of a release that builds images too, within a machine of two cores.
BUILDS: Final = (
    "builds.enabled=true",
    "builds.limits.cpuMillicores=2000",
    "builds.limits.memoryMebibytes=1024",
    "builds.limits.diskMebibytes=1536",
    "builds.keepSeconds=30",
)


@asynccontextmanager
async def committing(release: str, folder: Path, *more: str, direct: bool = False) -> AsyncIterator[Installed]:
    """The release while the block runs; images of the cluster's registry pass through its own one.

    Args:
        release: its name, also that of its runtime class, so that it runs without another release as well.
        folder: for the settings of a registry.
        more: of the chart's values.
        direct: whether the node may ask the cluster's registry itself too, as one that speaks TLS: an image that is in
            neither is then known not to be there.
    """
    address = await node_address()
    pull, push, commits, other = (free_port(address) for _ in range(4))
    chosen = (
        *BESIDE_ANOTHER,
        *ONE_OF_EACH,
        # An image that one of them has made is started by the other.
        "controlplane.replicas=2",
        "runtimeClass.create=true",
        f"runtimeClass.name={release}",
        *values(address, pull, push, other),
        f"registry.commitPort={commits}",
        "nodeAgent.enabled=true",
        f"nodeAgent.containerd.socket={CONTAINERD_SOCKET}",
        f"nodeAgent.containerd.root={CLUSTER / 'containerd'}",
        f"nodeAgent.runsc.root={RUN / 'runsc/k8s.io'}",
        f"sandboxes.images.rewrites[0]={REGISTRY}/* -> {address}:{other}/{REGISTRY.partition('/')[2]}/*",
        *more,
    )
    itself = trusted(f"{address}:{other}", f'server = "http://{address}:{other}"\n', "") if direct else nullcontext()
    with upstream(folder, address, other, account=False), itself:
        async with installed(release, *chosen) as made:
            with trusted(*await told(made)):
                yield made


@asynccontextmanager
async def counted_pulls(made: Installed) -> AsyncIterator[list[str]]:
    """What the node fetches from the release's registry while the block runs: blobs, as often as each was asked for."""
    host, hosts, authority = await told(made)
    found = re.search(r"https://([^\"]+)", hosts)
    assert found, hosts
    async with front(found[1], ssl.create_default_context(cadata=authority)) as before:
        # containerd reads it at every pull.
        file = ETC / "certs.d" / host / "hosts.toml"
        file.write_text(f'server = "http://{before.address}"\n[host."http://{before.address}"]\n')
        try:
            yield before.layers
        finally:
            file.write_text(hosts)
