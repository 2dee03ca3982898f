"""The client of the sidecar (``contract/agent.proto``), over a unix socket or TCP."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from grpc import aio

from controlplane.cluster.protocol import Health
from controlplane.errors.rpc import from_rpc
from controlplane.model import SandboxSpec
from controlplane.wire import agent_pb2, agent_pb2_grpc

# Both calls answer in milliseconds; a sidecar that takes this long is not well.
CALL_TIMEOUT_S: Final = 10.0
_CHANNEL_OPTIONS: Final = (
    # A socket's path makes an :authority that HTTP/2 servers refuse; a plain name is fine for both kinds.
    ("grpc.default_authority", "sidecar"),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
)


class GrpcSidecars:
    """One connection per call: the control plane speaks to a sandbox once or twice in its life."""

    async def configure(self, address: str, token: str, spec: SandboxSpec) -> None:
        """See ``Sidecars.configure``."""
        request = agent_pb2.ConfigureRequest(env=spec.env, cwd=spec.cwd, user=spec.user)
        async with _agent(address) as agent:
            await agent.Configure(request, timeout=CALL_TIMEOUT_S, metadata=_metadata(token))

    async def health(self, address: str, token: str) -> Health:
        """See ``Sidecars.health``."""
        async with _agent(address) as agent:
            seen = await agent.Health(agent_pb2.HealthRequest(), timeout=CALL_TIMEOUT_S, metadata=_metadata(token))
            quiet_ms = seen.quiet_us // 1000 if seen.HasField("quiet_us") else None
            return Health(seen.sandbox_id, seen.kernel, seen.uptime_ms, seen.acknowledged, quiet_ms, seen.running_execs)


@asynccontextmanager
async def _agent(address: str) -> AsyncIterator[agent_pb2_grpc.AgentStub]:
    async with aio.insecure_channel(address.removeprefix("http://"), options=_CHANNEL_OPTIONS) as channel:
        try:
            yield agent_pb2_grpc.AgentStub(channel)  # type: ignore[no-untyped-call]
        except aio.AioRpcError as error:
            raise from_rpc(error, f"the sidecar at {address}") from error


def _metadata(token: str) -> tuple[tuple[str, str]]:
    return (("authorization", f"Bearer {token}"),)
