"""A node provider that speaks contract/provider.proto: the reference for those who write one.

Its machines are made by a function, and are removed by another one; it keeps what it was asked for in memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from grpc import aio

from controlplane.wire import provider_pb2, provider_pb2_grpc

Make = Callable[[str, str], Awaitable[str]]
Unmake = Callable[[str], Awaitable[None]]


@dataclass
class Group:
    """A group: its target, its machines by id, each with its node once that is there, and a version of all that."""

    target: int = 0
    machines: dict[str, str] = field(default_factory=dict)
    version: int = 0


class NodeProvider(provider_pb2_grpc.NodeProviderServicer):
    """See above.

    Args:
        groups: their names.
        make: makes a machine of a group; the name of its node, empty: that joins later, as `groups` is told then.
        unmake: removes it.
    """

    def __init__(self, groups: list[str], make: Make, unmake: Unmake) -> None:
        self.groups = {name: Group() for name in groups}
        self._make = make
        self._unmake = unmake
        self._made = 0
        self._free = asyncio.Lock()
        self.stock = 1_000
        self.hangs = False
        self.broken = False

    async def GetGroup(self, request: Any, context: Any) -> provider_pb2.GetGroupReply:  # noqa: N802
        """See the contract."""
        group = await self._group(request.group, context)
        machines = [provider_pb2.Machine(id=one, node=node) for one, node in group.machines.items()]
        return provider_pb2.GetGroupReply(target=group.target, machines=machines, version=str(group.version))

    async def SetTarget(self, request: Any, context: Any) -> provider_pb2.SetTargetReply:  # noqa: N802
        """See the contract."""
        group = await self._group(request.group, context, request.version)
        more = request.target - len(group.machines)
        if more > self.stock:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{self.stock} machines of this type are left")
        group.target, group.version = request.target, group.version + 1
        for _ in range(more):
            self._made += 1
            name = f"{request.group}-{self._made}"
            group.machines[name] = await self._make(request.group, name)
        return provider_pb2.SetTargetReply()

    async def RemoveMachines(self, request: Any, context: Any) -> provider_pb2.RemoveMachinesReply:  # noqa: N802
        """See the contract."""
        group = await self._group(request.group, context, request.version)
        for one in request.ids:
            if group.machines.pop(one, None) is not None:
                group.target, group.version = group.target - 1, group.version + 1
                await self._unmake(one)
        return provider_pb2.RemoveMachinesReply()

    async def _group(self, name: str, context: Any, version: str | None = None) -> Group:
        if self.hangs:
            await asyncio.Event().wait()
        if self.broken:
            await context.abort(grpc.StatusCode.INTERNAL, "its cloud answers with errors")
        group = self.groups.get(name)
        if group is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"there is no group {name}")
        elif version is not None and version != str(group.version):
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"version {version} is not {group.version}")
        assert group is not None
        return group


@asynccontextmanager
async def provided(
    provider: NodeProvider, tls_folder: Path, host: str = "127.0.0.1", port: int = 0
) -> AsyncIterator[str]:
    """Serves it while the block runs, to those whose certificate the folder's authority has signed; its address.

    Args:
        provider: what answers.
        tls_folder: with ``ca.crt``, ``tls.crt`` and ``tls.key``.
        host: where it listens.
        port: 0: any that is free.
    """
    server = aio.server()
    provider_pb2_grpc.add_NodeProviderServicer_to_server(provider, server)  # type: ignore[no-untyped-call]
    key, certificate = (tls_folder / "tls.key").read_bytes(), (tls_folder / "tls.crt").read_bytes()
    credentials = grpc.ssl_server_credentials(
        [(key, certificate)], root_certificates=(tls_folder / "ca.crt").read_bytes(), require_client_auth=True
    )
    port = server.add_secure_port(f"{host}:{port}", credentials)
    await server.start()
    try:
        yield f"{host}:{port}"
    finally:
        await server.stop(None)
