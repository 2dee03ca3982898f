"""What the console asks of a sidecar, over real gRPC: usage and commands, as the API names them."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from grpc import aio

from controlplane.cluster import Command, SandboxUsage
from controlplane.cluster.sidecar import GrpcSidecars
from controlplane.egress import EgressAttempt
from controlplane.errors import Problem
from controlplane.wire import agent_pb2, agent_pb2_grpc
from tests.support.silent_port import silent_port

USED = agent_pb2.UsageReport(
    cpu_us=1_999, memory_bytes=2, memory_limit_bytes=3, disk_bytes=4, disk_limit_bytes=5, processes=6, processes_limit=7
)
COUNTERS = (
    (agent_pb2.UsageReport.NODE, True),
    (agent_pb2.UsageReport.SANDBOX, False),
    # A sidecar of the version before: it may run in gVisor.
    (agent_pb2.UsageReport.COUNTER_UNSPECIFIED, False),
)
RAN = [
    agent_pb2.ExecSummary(exec_id="e2", argv=["sleep", "9"], started_at_ms=8, running=True, end=agent_pb2.EXITED),
    agent_pb2.ExecSummary(exec_id="e1", argv=["a b"], end=agent_pb2.OOM_KILLED, stdout_bytes=1, stderr_bytes=2),
    agent_pb2.ExecSummary(exec_id="e0", argv=["false"], end=agent_pb2.EXITED, exit_code=1),
]


REFUSED = [
    agent_pb2.Refused(at_ms=7, host="a.org", port=443, protocol="connect", count=2),
    agent_pb2.Refused(at_ms=8, host="b\x1b.org", port=443, protocol="socks5", lost=True, count=1),
]


class Sidecar(agent_pb2_grpc.AgentServicer):
    used = USED

    async def Usage(self, request: Any, context: Any) -> agent_pb2.UsageReport:  # noqa: N802 - the names of the protocol
        assert dict(context.invocation_metadata())["authorization"] == "Bearer t"
        return self.used

    async def List(self, request: Any, context: Any) -> agent_pb2.ListResponse:  # noqa: N802
        assert dict(context.invocation_metadata())["authorization"] == "Bearer t"
        return agent_pb2.ListResponse(execs=RAN)

    async def ListRefused(self, request: Any, context: Any) -> agent_pb2.RefusedList:  # noqa: N802
        assert dict(context.invocation_metadata())["authorization"] == "Bearer t"
        return agent_pb2.RefusedList(refused=REFUSED)


@pytest.fixture
async def address() -> AsyncIterator[str]:
    server = aio.server(options=[("grpc.so_reuseport", 0)])
    agent_pb2_grpc.add_AgentServicer_to_server(Sidecar(), server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"http://127.0.0.1:{port}"
    await server.stop(grace=None)


@pytest.mark.parametrize(("counter", "by_node"), COUNTERS)
async def test_usage_is_read(address: str, monkeypatch: pytest.MonkeyPatch, counter: Any, by_node: bool) -> None:
    used = agent_pb2.UsageReport(counter=counter)
    used.MergeFrom(USED)
    monkeypatch.setattr(Sidecar, "used", used)
    assert await GrpcSidecars().usage(address, "t") == SandboxUsage(1, 2, 3, 4, 5, 6, 7, by_node)


async def test_commands_have_the_ends_of_the_api(address: str) -> None:
    assert await GrpcSidecars().commands(address, "t") == [
        Command("e2", ("sleep", "9"), 8, "", 0, 0, 0),
        Command("e1", ("a b",), 0, "oom_killed", 0, 1, 2),
        Command("e0", ("false",), 0, "exited", 1, 0, 0),
    ]


async def test_what_was_refused_is_as_egress_would_tell_it(address: str) -> None:
    assert await GrpcSidecars().refused(address, "t") == [
        EgressAttempt(7, "a.org", 443, "", "denied_name", "offline", "", "connect", count=2),
        EgressAttempt(8, "b?.org", 443, "", "no_link", "", "", "socks5"),
    ]


async def test_where_nobody_is_all_fail_as_unreachable() -> None:
    with silent_port() as nobody:
        for look in (GrpcSidecars().usage, GrpcSidecars().commands, GrpcSidecars().refused):
            with pytest.raises(Problem) as caught:
                await look(f"http://127.0.0.1:{nobody}", "t")
            assert caught.value.code == "sandbox_unreachable"
