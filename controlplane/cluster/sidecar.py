"""The client of the sidecar (``contract/agent.proto``), over a Unix socket or TCP."""

from typing import Final, TypeVar

from google.protobuf.message import Message
from grpc import aio

from controlplane.cluster.protocol import Health
from controlplane.errors.rpc import from_rpc
from controlplane.model import SandboxSpec
from controlplane.wire import agent_pb2

T = TypeVar("T", bound=Message)

# Both calls are answered in milliseconds; a sidecar that takes this long does not work.
CALL_TIMEOUT_S: Final = 10.0
_CHANNEL_OPTIONS: Final = (
    # The default :authority of a Unix socket is its path, which HTTP/2 servers refuse; a plain name suits both kinds.
    ("grpc.default_authority", "sidecar"),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
)


_SERVICE: Final = agent_pb2.DESCRIPTOR.services_by_name["Agent"].full_name


class GrpcSidecars:
    """Opens a connection for each call: the control plane calls a sidecar only once or twice in a sandbox's life."""

    async def configure(self, address: str, token: str, spec: SandboxSpec) -> None:
        """See ``Sidecars.configure``."""
        request = agent_pb2.ConfigureRequest(env=spec.env, cwd=spec.cwd, user=spec.user)
        await _asked(address, token, "Configure", request, agent_pb2.Configured)

    async def health(self, address: str, token: str) -> Health:
        """See ``Sidecars.health``."""
        seen = await _asked(address, token, "Health", agent_pb2.HealthRequest(), agent_pb2.HealthResponse)
        quiet_ms = seen.quiet_us // 1000 if seen.HasField("quiet_us") else None
        return Health(seen.sandbox_id, seen.kernel, seen.uptime_ms, seen.acknowledged, quiet_ms, seen.running_execs)


async def _asked(address: str, token: str, method: str, request: Message, answer: type[T]) -> T:
    metadata = (("authorization", f"Bearer {token}"),)
    async with aio.insecure_channel(address.removeprefix("http://"), options=_CHANNEL_OPTIONS) as channel:
        # Not the generated stub: it would set up all methods of the sidecar, and only one is called.
        call = channel.unary_unary(
            f"/{_SERVICE}/{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=answer.FromString,
        )
        try:
            answered: T = await call(request, timeout=CALL_TIMEOUT_S, metadata=metadata)
        except aio.AioRpcError as error:
            raise from_rpc(error, f"the sidecar at {address}") from error
        return answered
