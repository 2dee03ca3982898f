"""The client of the sidecar (``contract/agent.proto``), over a Unix socket or TCP."""

from collections.abc import Sequence
from typing import Final, TypeVar

from google.protobuf.message import Message
from grpc import aio

from controlplane.cluster.protocol import Command, Health, SandboxUsage
from controlplane.egress import OFFLINE, EgressAttempt
from controlplane.errors import Problem
from controlplane.errors.rpc import from_rpc
from controlplane.wire import agent_pb2

T = TypeVar("T", bound=Message)

# Both calls are answered in milliseconds; a sidecar that takes this long does not work.
CALL_TIMEOUT_S: Final = 10.0
# Somebody waits in front of a page, and most other sandboxes on it have answered.
LOOK_S: Final = 2.0
# What a command reads of an image that is mounted lazily may have to come from a registry first.
TRIED_WITHIN_MS: Final = 60_000
# Shells say so that they could not read or find a program.
NOT_RUN: Final = frozenset({126, 127})
_CHANNEL_OPTIONS: Final = (
    # The default :authority of a Unix socket is its path, which HTTP/2 servers refuse; a plain name suits both kinds.
    ("grpc.default_authority", "sidecar"),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
)


SERVICE: Final = agent_pb2.DESCRIPTOR.services_by_name["Agent"].full_name


def channel(address: str) -> aio.Channel:
    """A channel to a sidecar; opens no connection before the first call.

    Args:
        address: of the sidecar, as a sandbox's record has it.
    """
    return aio.insecure_channel(address.removeprefix("http://"), options=_CHANNEL_OPTIONS)


class GrpcSidecars:
    """Opens a connection for each call: the control plane calls a sidecar seldom (at its start, in health probes, and
    while somebody looks at it in the console).
    """

    async def health(self, address: str, token: str) -> Health:
        """See ``Sidecars.health``."""
        seen = await _asked(address, token, "Health", agent_pb2.HealthRequest(), agent_pb2.HealthResponse)
        quiet_ms = seen.quiet_us // 1000 if seen.HasField("quiet_us") else None
        return Health(seen.sandbox_id, seen.kernel, seen.uptime_ms, seen.acknowledged, quiet_ms, seen.running_execs)

    async def usage(self, address: str, token: str) -> SandboxUsage:
        """See ``Sidecars.usage``."""
        used = await _asked(address, token, "Usage", agent_pb2.UsageRequest(), agent_pb2.UsageReport, within_s=LOOK_S)
        return SandboxUsage(
            cpu_ms=used.cpu_us // 1000,
            memory_bytes=used.memory_bytes,
            memory_limit_bytes=used.memory_limit_bytes,
            disk_bytes=used.disk_bytes if used.HasField("disk_bytes") else None,
            disk_limit_bytes=used.disk_limit_bytes,
            processes=used.processes,
            processes_limit=used.processes_limit,
            cpu_by_node=used.counter == agent_pb2.UsageReport.NODE,
        )

    async def commands(self, address: str, token: str) -> Sequence[Command]:
        """See ``Sidecars.commands``."""
        told = await _asked(address, token, "List", agent_pb2.ListRequest(), agent_pb2.ListResponse, within_s=LOOK_S)
        return [
            Command(
                exec_id=one.exec_id,
                argv=tuple(one.argv),
                started_at_ms=one.started_at_ms,
                end="" if one.running else agent_pb2.End.Name(one.end).lower(),
                exit_code=one.exit_code,
                stdout_bytes=one.stdout_bytes,
                stderr_bytes=one.stderr_bytes,
            )
            for one in told.execs
        ]

    async def refused(self, address: str, token: str) -> Sequence[EgressAttempt]:
        """See ``Sidecars.refused``."""
        request = agent_pb2.ListRefusedRequest()
        told = await _asked(address, token, "ListRefused", request, agent_pb2.RefusedList, within_s=LOOK_S)
        return [
            EgressAttempt.made(
                at_ms=one.at_ms,
                host=one.host,
                port=one.port,
                address="",
                verdict="no_link" if one.lost else "denied_name",
                policy="" if one.lost else OFFLINE.name,
                rule="",
                protocol=one.protocol,
                count=one.count,
            )
            for one in told.refused
        ]

    async def ran(self, address: str, token: str, command: str, within_ms: int) -> str:
        """See ``Sidecars.ran``.

        Args:
            address: of the sidecar.
            token: for it.
            command: a line for the shell.
            within_ms: how long it may run.
        """
        request = agent_pb2.ExecRequest(exec_id="recorded", command=command, timeout_ms=within_ms)
        within_s = within_ms / 1000 + CALL_TIMEOUT_S
        result = await _asked(address, token, "Exec", request, agent_pb2.ExecResult, within_s=within_s)
        if result.end == agent_pb2.DEADLINE:
            raise Problem("exec_deadline", f"the command was not over within {within_ms / 1000:.0f} s")
        if result.end == agent_pb2.EXITED:
            return "" if result.exit_code == 0 else f"it exited with {result.exit_code}"
        return f"it ended with {agent_pb2.End.Name(result.end)} (signal {result.signal})"

    async def tried(self, address: str, token: str, argv: Sequence[str]) -> str:
        """See ``Sidecars.tried``."""
        request = agent_pb2.ExecRequest(exec_id="tried", argv=argv, cwd="/", timeout_ms=TRIED_WITHIN_MS)
        within_s = TRIED_WITHIN_MS / 1000 + CALL_TIMEOUT_S
        try:
            result = await _asked(address, token, "Exec", request, agent_pb2.ExecResult, within_s=within_s)
        except Problem as problem:
            if problem.details.get("reason") == "command_not_found":
                return ""
            raise Problem("image_pull_failed", f"{argv[0]} was not started: {problem.detail}") from problem
        said = result.stderr.data[-200:].decode(errors="replace").strip()
        if result.end != agent_pb2.EXITED or result.exit_code in NOT_RUN:
            detail = f"{argv[0]} ended with {agent_pb2.End.Name(result.end)} {result.exit_code}: {said}"
            raise Problem("image_pull_failed", detail)
        return "" if result.exit_code == 0 else f"{argv[0]} exited with {result.exit_code}: {said}"


async def _asked(
    address: str, token: str, method: str, request: Message, answer: type[T], *, within_s: float = CALL_TIMEOUT_S
) -> T:
    metadata = (("authorization", f"Bearer {token}"),)
    async with channel(address) as opened:
        # Not the generated stub: it would set up all methods of the sidecar, and only one is called.
        call = opened.unary_unary(
            f"/{SERVICE}/{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=answer.FromString,
        )
        try:
            answered: T = await call(request, timeout=within_s, metadata=metadata)
        except aio.AioRpcError as error:
            raise from_rpc(error, f"the sidecar at {address}") from error
        return answered
