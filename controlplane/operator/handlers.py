"""The Kopf handlers. Only plain event handlers are used, since all other kinds would write to the sandboxes' pods."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final

import kopf

from controlplane.cluster.kubernetes.access import Access
from controlplane.cluster.kubernetes.podspec import LABEL_INSTALLATION
from controlplane.operator.nodes import NodeNotices
from controlplane.operator.plan import STUCK_MS

# How long after a pod's deletion a sweep follows: a little more than the time that the control plane has for it.
LOOK_AFTER_S: Final = STUCK_MS / 1000 + 2


def registry(way: Access, nodes: NodeNotices, soon: asyncio.Event, installation: str) -> kopf.OperatorRegistry:
    """Creates the handlers.

    Args:
        way: address and credentials of the API server.
        nodes: called for every change of a node.
        soon: set to trigger a sweep.
        installation: the installation whose pods are watched.
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
    """Kopf's login handler: converts ``Access``; Kopf calls it again when the API server rejects the credentials."""
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
    """Kopf settings for watching only: it posts no Events, serves no webhooks and does not scan for new resources."""
    made = kopf.OperatorSettings()
    made.posting.enabled = False
    made.scanning.disabled = True
    logging.getLogger("kopf").setLevel(logging.WARNING)
    return made
