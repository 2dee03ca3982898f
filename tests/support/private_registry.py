"""A release with a registry of its own, whose images come from the cluster's registry at another address."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.cluster import layout
from tests.support.installed import Installed, kubectl
from tests.support.registry import HTPASSWD, registry_server
from tests.support.stack import free_port


@contextmanager
def upstream(folder: Path, address: str, port: int, *, account: bool) -> Iterator[None]:
    """The cluster's images at an address that only the mirror and the control plane ask."""
    folder.mkdir(exist_ok=True)
    (folder / "htpasswd").write_text(HTPASSWD)
    more: dict[str, Any] = {"storage": {"filesystem": {"rootdirectory": str(layout.CACHE / "registry")}}}
    more["storage"]["maintenance"] = {"readonly": {"enabled": True}}
    if account:
        more["auth"] = {"htpasswd": {"realm": "r", "path": str(folder / "htpasswd")}}
    with registry_server(folder, f"{address}:{port}", **more):
        yield


def values(address: str, pull: int, push: int, upstream_port: int) -> tuple[str, ...]:
    """What the chart is told of such a release.

    Args:
        address: the node's.
        pull: the port of the registry for nodes.
        push: the port for what fills it.
        upstream_port: where images come from.
    """
    return (
        "registry.enabled=true",
        f"registry.addresses[0]={address}",
        f"registry.port={pull}",
        f"registry.pushPort={push}",
        f"registry.collectorPort={free_port(address)}",
        "registry.persistence.enabled=false",
        "registry.persistence.size=10Gi",
        f"sandboxes.images.plainHttpRegistries[0]={address}:{upstream_port}",
        *(f"registry{part}.resources.requests.cpu=5m" for part in ("", ".mirror")),
    )


async def told(stack: Installed) -> tuple[str, str, str]:
    """What the release tells nodes of its registry: its name, its hosts.toml, its authority."""
    name = f"{stack.release}-registry-nodes"
    data = json.loads(await kubectl("get", "configmap", name, "-n", stack.namespace, "-o", "json"))["data"]
    return data["host"], data["hosts.toml"], data["ca.crt"]
