"""The Kopf handlers. Only a plain event handler is used, since all other kinds write to what they watch.

Pods are not watched: Kopf holds whole objects, and thousands of pods are more than the operator needs. The sweep
lists them page by page and keeps a tenth of each.
"""

import logging
from collections.abc import Mapping
from typing import Any

import kopf

from controlplane.cluster.kubernetes.api_server.access import Access
from controlplane.operator.nodes import NodeNotices


def registry(way: Access, nodes: NodeNotices) -> kopf.OperatorRegistry:
    """Creates the handlers.

    Args:
        way: address and credentials of the API server.
        nodes: called for every change of a node.
    """
    made = kopf.OperatorRegistry()

    @kopf.on.login(registry=made)
    async def login(**_: Any) -> kopf.ConnectionInfo:  # noqa: ANN401 - Kopf's own convention
        return await connection(way)

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
