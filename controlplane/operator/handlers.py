"""Kopf's part: it watches and calls. Only plain event handlers: every other kind would write to the sandboxes' pods."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final

import kopf

from controlplane.cluster.kubernetes.access import Access
from controlplane.cluster.kubernetes.podspec import LABEL_INSTALLATION
from controlplane.operator.nodes import NodeNotices
from controlplane.operator.plan import STUCK_MS

# After a pod's end begins: the time that the control plane has, and a little.
LOOK_AFTER_S: Final = STUCK_MS / 1000 + 2


def registry(way: Access, nodes: NodeNotices, soon: asyncio.Event, installation: str) -> kopf.OperatorRegistry:
    """The handlers.

    Args:
        way: to the API server.
        nodes: told of every change of a node.
        soon: set when a sweep should come soon.
        installation: whose pods are looked at.
    """
    made = kopf.OperatorRegistry()

    @kopf.on.login(registry=made)
    async def login(**_: Any) -> kopf.ConnectionInfo:  # noqa: ANN401 - Kopf's own convention
        return await connection(way)

    @kopf.on.event("", "v1", "pods", labels={LABEL_INSTALLATION: installation}, registry=made)
    async def pod(meta: Mapping[str, Any], **_: Any) -> None:  # noqa: ANN401
        if meta.get("deletionTimestamp"):
            asyncio.get_running_loop().call_later(LOOK_AFTER_S, soon.set)

    @kopf.on.event("", "v1", "nodes", registry=made)
    async def node(body: Mapping[str, Any], type: str | None, **_: Any) -> None:  # noqa: A002, ANN401
        await nodes.seen(body, deleted=type == "DELETED")

    return made


async def connection(way: Access) -> kopf.ConnectionInfo:
    """The same way to the API server, in Kopf's words; asked again when the server refuses a credential."""
    headers = await way.headers()
    configuration = way.configuration
    return kopf.ConnectionInfo(
        server=way.url,
        ca_path=configuration.ssl_ca_cert,
        insecure=not configuration.verify_ssl,
        scheme="Bearer",
        token=headers.get("Authorization", "").removeprefix("Bearer ") or None,
        certificate_path=configuration.cert_file,
        private_key_path=configuration.key_file,
    )


def options() -> kopf.OperatorSettings:
    """Kopf without what it does besides watching: no events, no webhooks, no look-out for new kinds of objects."""
    made = kopf.OperatorSettings()
    made.posting.enabled = False
    made.scanning.disabled = True
    logging.getLogger("kopf").setLevel(logging.WARNING)
    return made
