"""``RemoteProvider``: a node provider that speaks ``contract/provider.proto``, over mutual TLS."""

from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, Self, TypeVar

import grpc
from grpc import aio

from controlplane.cluster.kubernetes.node_pools.provider import CALL_WITHIN_S
from controlplane.errors import Code, Problem
from controlplane.scaling.node_pool import NodePool
from controlplane.scaling.seen import Group, Machine
from controlplane.wire import provider_pb2, provider_pb2_grpc

# Five thousand machines with names of the longest kind.
MOST_BYTES: Final = 4 << 20
_OPTIONS: Final = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.max_receive_message_length", MOST_BYTES),
)
_CODES: Final[dict[grpc.StatusCode, Code]] = {
    grpc.StatusCode.FAILED_PRECONDITION: "conflict",
    grpc.StatusCode.ABORTED: "conflict",
    grpc.StatusCode.RESOURCE_EXHAUSTED: "capacity_unavailable",
    grpc.StatusCode.DEADLINE_EXCEEDED: "upstream_timeout",
    grpc.StatusCode.UNAVAILABLE: "upstream_timeout",
    grpc.StatusCode.NOT_FOUND: "not_found",
    grpc.StatusCode.PERMISSION_DENIED: "permission_denied",
    grpc.StatusCode.UNAUTHENTICATED: "unauthenticated",
    grpc.StatusCode.UNIMPLEMENTED: "unsupported",
}
T = TypeVar("T")


class RemoteProvider:
    """See ``Provider``; a pool's group is the provider's name for it."""

    def __init__(self, channel: aio.Channel) -> None:
        self._stub = provider_pb2_grpc.NodeProviderStub(channel)  # type: ignore[no-untyped-call]

    @classmethod
    @asynccontextmanager
    async def open(cls, address: str, tls_folder: Path, name: str) -> AsyncIterator[Self]:
        """A client while the block runs; it connects when needed.

        Args:
            address: host and port.
            tls_folder: has ``ca.crt``, ``tls.crt`` and ``tls.key``.
            name: in the provider's certificate, whatever address it is reached at.
        """
        credentials = grpc.ssl_channel_credentials(
            root_certificates=(tls_folder / "ca.crt").read_bytes(),
            private_key=(tls_folder / "tls.key").read_bytes(),
            certificate_chain=(tls_folder / "tls.crt").read_bytes(),
        )
        options = (*_OPTIONS, ("grpc.ssl_target_name_override", name))
        async with aio.secure_channel(address, credentials, options=options) as channel:
            yield cls(channel)

    async def look(self, pool: NodePool) -> Group:
        """See ``Provider.look``."""
        request = provider_pb2.GetGroupRequest(group=pool.group)
        told = await _asked(self._stub.GetGroup(request, timeout=CALL_WITHIN_S), pool)
        return Group(told.target, [Machine(one.id, one.node, one.failed) for one in told.machines], told.version)

    async def ask(self, pool: NodePool, group: Group, target: int, held: int) -> None:
        """See ``Provider.ask``."""
        del held
        request = provider_pb2.SetTargetRequest(group=pool.group, target=target, version=group.version)
        await _asked(self._stub.SetTarget(request, timeout=CALL_WITHIN_S), pool)

    async def remove(self, pool: NodePool, group: Group, machines: Sequence[Machine]) -> None:
        """See ``Provider.remove``."""
        ids = [one.id for one in machines]
        request = provider_pb2.RemoveMachinesRequest(group=pool.group, ids=ids, version=group.version)
        await _asked(self._stub.RemoveMachines(request, timeout=CALL_WITHIN_S), pool)

    async def keep(self, pool: NodePool, node: str) -> None:
        """See ``Provider.keep``: a removal that failed leaves nothing."""


async def _asked(call: Awaitable[T], pool: NodePool) -> T:
    try:
        return await call
    except aio.AioRpcError as error:
        detail = f"the provider of {pool.name} answered {error.code().name}: {(error.details() or '')[:200]}"
        raise Problem(_CODES.get(error.code(), "internal"), detail, node_pool=pool.name) from error
