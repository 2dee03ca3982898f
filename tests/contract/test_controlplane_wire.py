"""The control plane's gRPC sides over real sockets: the route feed it serves, the sidecar it calls."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from grpc import StatusCode, aio
from prometheus_client import generate_latest
from structlog.typing import EventDict

from controlplane.api import listeners
from controlplane.api.feed_key import FeedDoor
from controlplane.api.listeners import serving_http, serving_routes
from controlplane.clock import SystemClock
from controlplane.cluster.sidecar import GrpcSidecars
from controlplane.egress import EgressOptions
from controlplane.errors import Code, Problem
from controlplane.errors.rpc import abort, from_rpc
from controlplane.lifecycle import Activity, Options, RouteBoard, SigningKey
from controlplane.model import EndCause, Sandbox, State
from controlplane.settings import Listen
from controlplane.telemetry import Metrics
from controlplane.wire import agent_pb2, agent_pb2_grpc, egress_pb2, egress_pb2_grpc, routes_pb2, routes_pb2_grpc
from tests.contract.answers_suite import AnswersSuite, Asked
from tests.contract.routes_suite import Feed, RoutesSuite
from tests.support.waiting import until
from tests.support.world import KEY, OWNER, PRIVATE, SPEC, world

FEED_KEY = "0123456789abcdefghijklmnopqrstuvwxyz"
SHOWN = (("authorization", f"Bearer {FEED_KEY}"),)
RUNNING = Sandbox("sb-1", "alice", SPEC, 0, 1, "f", state=State.RUNNING, address="unix:/a")


async def test_the_feed_sends_snapshot_deltas_and_heartbeats(tmp_path: Path) -> None:
    clock = SystemClock()
    board = RouteBoard(clock, SigningKey(PRIVATE, clock))
    board.publish(RUNNING)
    listen, activity = Listen(path=tmp_path / "r.sock"), Activity(clock, GrpcSidecars(), SigningKey(PRIVATE, clock))
    activity.follow("sb-1")
    async with serving_routes(board, activity, listen), aio.insecure_channel(str(listen)) as channel:
        stub = routes_pb2_grpc.RoutesStub(channel)  # type: ignore[no-untyped-call]
        stream = stub.Watch(routes_pb2.WatchRequest(gateway_id="g"))
        assert [route.sandbox_id for route in (await stream.read()).snapshot.routes] == ["sb-1"]
        board.withdraw(replace(RUNNING, end=EndCause("oom_killed", "d", clock.now_ms(), "engine")))
        while (update := await stream.read()).WhichOneof("body") == "heartbeat":
            pass
        assert [end.cause for end in update.delta.ends] == ["oom_killed"]
        async with asyncio.timeout(60):
            assert (await stream.read()).WhichOneof("body") == "heartbeat"
        assert listen.path is not None
        assert listen.path.stat().st_mode & 0o777 == 0o600
        stream.cancel()
        used = [routes_pb2.Used(sandbox_id="sb-1", since_us=2_000_000), routes_pb2.Used(sandbox_id="sb-2")]
        await stub.Report(routes_pb2.ActivityReport(gateway_id="g", used=used))
        assert 0 <= clock.now_ms() - 2000 - activity.used_ms("sb-1") < 60_000
        assert activity.used_ms("sb-2") == 0, "nobody follows it"
        assert activity.gateway_reports.judges_from(0, 0) is not None


async def test_gateways_ask_what_the_node_of_a_sandbox_has_counted(tmp_path: Path) -> None:
    listen = Listen(path=tmp_path / "r.sock")
    async with world(clock=SystemClock()) as plane:
        service = plane.service
        plane.cluster.cpu["sb-1"] = 2_491_000
        serving = serving_routes(service.board, service.activity, listen, cpu_us=service.console_views.cpu_us)
        async with serving, aio.insecure_channel(str(listen)) as channel:
            stub = routes_pb2_grpc.RoutesStub(channel)  # type: ignore[no-untyped-call]
            told = await stub.Usage(routes_pb2.UsageRequest(sandbox_id="sb-1"))
            assert told == routes_pb2.NodeUsage(cpu_us=2_491_000)
            assert not (await stub.Usage(routes_pb2.UsageRequest(sandbox_id="sb-2"))).HasField("cpu_us")
            plane.cluster.cpu_problem = Problem("upstream_timeout", "its agent is away")
            assert not (await stub.Usage(routes_pb2.UsageRequest(sandbox_id="sb-1"))).HasField("cpu_us")


@dataclass(frozen=True)
class BoardFeed:
    """The control plane's feed, and the board behind it."""

    stub: Any
    board: RouteBoard

    async def push(self, sandbox_id: str) -> None:
        self.board.publish(replace(RUNNING, id=sandbox_id))

    async def end(self, sandbox_id: str, cause: Code) -> None:
        end = EndCause(cause, "d", SystemClock().now_ms(), "engine")
        self.board.withdraw(replace(RUNNING, id=sandbox_id, end=end))


class TestRoutes(RoutesSuite):
    """See `RoutesSuite`."""

    @pytest.fixture
    async def feed(self, tmp_path: Path) -> AsyncIterator[Feed]:
        clock = SystemClock()
        board = RouteBoard(clock, SigningKey(PRIVATE, clock))
        board.publish(RUNNING)
        listen, activity = Listen(path=tmp_path / "r.sock"), Activity(clock, GrpcSidecars(), SigningKey(PRIVATE, clock))
        async with serving_routes(board, activity, listen), aio.insecure_channel(str(listen)) as channel:
            yield BoardFeed(routes_pb2_grpc.RoutesStub(channel), board)  # type: ignore[no-untyped-call]


class TestAnswers(AnswersSuite):
    """See `AnswersSuite`."""

    @pytest.fixture
    async def asked(self, tmp_path: Path) -> AsyncIterator[Asked]:
        path = tmp_path / "api.sock"
        async with (
            world(clock=SystemClock()) as plane,
            serving_http(plane.api.app, Listen(path=path)),
            aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(path))) as session,
        ):
            yield Asked(session, KEY)


async def test_the_egress_feed_is_beside_that_of_routes_where_egress_is_installed(tmp_path: Path) -> None:
    listen = Listen(path=tmp_path / "r.sock")
    options = Options(egress=EgressOptions(3128))
    async with world(clock=SystemClock(), options=options) as plane:
        service = plane.service
        async with (
            serving_routes(service.board, service.activity, listen, service.egress_feed, FeedDoor(FEED_KEY, Metrics())),
            aio.insecure_channel(str(listen)) as channel,
        ):
            stub = egress_pb2_grpc.EgressStub(channel)  # type: ignore[no-untyped-call]
            stream = stub.Watch(egress_pb2.WatchRequest(egress_id="e1"), metadata=SHOWN)
            assert list((await stream.read()).snapshot.assignments) == []
            sandbox = (await plane.create(OWNER, SPEC)).sandbox
            switching = asyncio.create_task(service.egress.switch(OWNER, sandbox.id, "packages"))
            while (update := await stream.read()).WhichOneof("body") == "heartbeat":
                pass
            (assignment,), (policy,) = update.delta.assignments, update.delta.policies
            assert (assignment.sandbox_id, assignment.policy_digest) == (sandbox.id, policy.digest)
            applied = egress_pb2.Applied(sandbox_id=sandbox.id, revision=assignment.revision, cut=1)
            await stub.Report(egress_pb2.EgressReport(egress_id="e1", applied=[applied]), metadata=SHOWN)
            assert (await switching).sandbox.egress.cut == 1
            again = stub.Watch(egress_pb2.WatchRequest(egress_id="e1"), metadata=SHOWN)
            assert [one.sandbox_id for one in (await again.read()).snapshot.assignments] == [sandbox.id]
            with pytest.raises(aio.AioRpcError, match="another egress replica is called e1"):
                await _drained(stream)
            again.cancel()


@pytest.mark.parametrize("metadata", [(), (("authorization", "Bearer other"),), (("authorization", FEED_KEY),)])
async def test_without_its_key_nobody_gets_the_egress_feed_and_no_report_is_taken(
    tmp_path: Path, metadata: tuple[tuple[str, str], ...], said: list[EventDict]
) -> None:
    listen, metrics = Listen(path=tmp_path / "r.sock"), Metrics()
    async with world(clock=SystemClock(), options=Options(egress=EgressOptions(3128))) as plane:
        service = plane.service
        door = FeedDoor(FEED_KEY, metrics)
        async with (
            serving_routes(service.board, service.activity, listen, service.egress_feed, door),
            aio.insecure_channel(str(listen)) as channel,
        ):
            stub = egress_pb2_grpc.EgressStub(channel)  # type: ignore[no-untyped-call]
            for _ in range(2):
                with pytest.raises(aio.AioRpcError) as refused:
                    await stub.Watch(egress_pb2.WatchRequest(egress_id="e1"), metadata=metadata).read()
                assert from_rpc(refused.value, "the control plane").code == "unauthenticated"
            with pytest.raises(aio.AioRpcError, match="the feed of egress was asked for with"):
                await stub.Report(egress_pb2.EgressReport(egress_id="e1"), metadata=metadata)
            assert service.egress_feed is not None
            assert not service.egress_feed.assignments.connected
    assert [one["event"] for one in said].count("feed of egress refused") == 1
    assert FEED_KEY not in str(said)
    assert "rollbox_egress_feed_refused_total 3.0" in generate_latest(metrics.registry).decode()


WATCHES = f"""
import sys, grpc
from controlplane.wire import egress_pb2, egress_pb2_grpc
with grpc.insecure_channel(sys.argv[1]) as channel:
    for update in egress_pb2_grpc.EgressStub(channel).Watch(
        egress_pb2.WatchRequest(egress_id="e1"), metadata=(("authorization", "Bearer {FEED_KEY}"),)
    ):
        pass
"""


async def test_a_replica_that_stands_still_is_taken_for_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listeners, "PING_EVERY_MS", 1_000)
    monkeypatch.setattr(listeners, "PING_WITHIN_MS", 1_000)
    listen = Listen(path=tmp_path / "r.sock")
    async with world(clock=SystemClock(), options=Options(egress=EgressOptions(3128))) as plane:
        service = plane.service
        assert service.egress_feed is not None
        board, door = service.egress_feed.assignments, FeedDoor(FEED_KEY, Metrics())
        async with serving_routes(service.board, service.activity, listen, service.egress_feed, door):
            process = await asyncio.create_subprocess_exec(sys.executable, "-c", WATCHES, str(listen))
            try:
                await until(lambda: _is({*board.live}, {"e1"}))
                process.send_signal(signal.SIGSTOP)
                await until(lambda: _is({*board.live}, set()))
                process.send_signal(signal.SIGCONT)
            finally:
                process.kill()
                await process.wait()


async def _is(found: object, wanted: object) -> bool:
    await asyncio.sleep(0.05)
    return found == wanted


async def test_an_empty_key_lets_nobody_in(tmp_path: Path) -> None:
    listen = Listen(path=tmp_path / "r.sock")
    async with world(clock=SystemClock(), options=Options(egress=EgressOptions(3128))) as plane:
        service = plane.service
        async with (
            serving_routes(service.board, service.activity, listen, service.egress_feed, FeedDoor("", Metrics())),
            aio.insecure_channel(str(listen)) as channel,
        ):
            stub = egress_pb2_grpc.EgressStub(channel)  # type: ignore[no-untyped-call]
            for metadata in ((), (("authorization", "Bearer "),)):
                with pytest.raises(aio.AioRpcError) as refused:
                    await stub.Watch(egress_pb2.WatchRequest(egress_id="e1"), metadata=metadata).read()
                assert refused.value.code() is StatusCode.UNAUTHENTICATED


async def _drained(stream: Any) -> None:
    while True:
        await stream.read()


async def test_without_egress_its_feed_is_not_there(tmp_path: Path) -> None:
    listen = Listen(path=tmp_path / "r.sock")
    async with world(clock=SystemClock()) as plane:
        service = plane.service
        async with (
            serving_routes(service.board, service.activity, listen),
            aio.insecure_channel(str(listen)) as channel,
        ):
            stub = egress_pb2_grpc.EgressStub(channel)  # type: ignore[no-untyped-call]
            with pytest.raises(aio.AioRpcError) as refused:
                await stub.Watch(egress_pb2.WatchRequest(egress_id="e1")).read()
            assert refused.value.code() is StatusCode.UNIMPLEMENTED


async def test_routes_of_one_moment_reach_a_gateway_in_one_message(tmp_path: Path) -> None:
    clock = SystemClock()
    board = RouteBoard(clock, SigningKey(PRIVATE, clock))
    listen, activity = Listen(path=tmp_path / "r.sock"), Activity(clock, GrpcSidecars(), SigningKey(PRIVATE, clock))
    async with serving_routes(board, activity, listen), aio.insecure_channel(str(listen)) as channel:
        stream = routes_pb2_grpc.RoutesStub(channel).Watch(routes_pb2.WatchRequest(gateway_id="g"))  # type: ignore[no-untyped-call]
        assert (await stream.read()).WhichOneof("body") == "snapshot"
        for number in range(100):
            board.publish(replace(RUNNING, id=f"sb-{number}"))
        while (update := await stream.read()).WhichOneof("body") == "heartbeat":
            pass
        assert [route.sandbox_id for route in update.delta.routes] == [f"sb-{number}" for number in range(100)]


class Sidecar(agent_pb2_grpc.AgentServicer):
    """Takes one token."""

    async def Exec(  # noqa: N802
        self, request: agent_pb2.ExecRequest, context: "aio.ServicerContext[object, object]"
    ) -> agent_pb2.ExecResult:
        program = request.command or request.argv[0]
        if program == "/not/there":
            await abort(context, Problem("invalid_argument", "it was not found", reason="command_not_found"))
        if program == "/bin/unreadable":
            await abort(context, Problem("invalid_argument", "it cannot be run", reason="not_executable"))
        if program == "/bin/late":
            await abort(context, Problem("sandbox_unreachable", "it does not answer"))
        if program == "/bin/true":
            return agent_pb2.ExecResult(end=agent_pb2.EXITED)
        said = agent_pb2.Output(data=b"it failed\n")
        if program == "/bin/killed":
            return agent_pb2.ExecResult(end=agent_pb2.DEADLINE, signal=9)
        if program == "/bin/out-of-memory":
            return agent_pb2.ExecResult(end=agent_pb2.OOM_KILLED, signal=9)
        exit_code = 126 if program == "/bin/126" else 1
        return agent_pb2.ExecResult(end=agent_pb2.EXITED, exit_code=exit_code, stderr=said)

    async def Health(  # noqa: N802
        self, request: agent_pb2.HealthRequest, context: "aio.ServicerContext[object, object]"
    ) -> agent_pb2.HealthResponse:
        if dict(context.invocation_metadata() or ())["authorization"] != "Bearer good":
            await abort(context, Problem("permission_denied", "the token is for sb-2", scope="exec"))
        return agent_pb2.HealthResponse(sandbox_id="sb-1", kernel="Linux", uptime_ms=7)


@asynccontextmanager
async def sidecar(path: Path) -> AsyncIterator[None]:
    server = aio.server()
    agent_pb2_grpc.add_AgentServicer_to_server(Sidecar(), server)  # type: ignore[no-untyped-call]
    server.add_insecure_port(f"unix:{path}")
    await server.start()
    try:
        yield
    finally:
        await server.stop(None)


async def test_a_sidecar_is_asked_for_its_health(tmp_path: Path) -> None:
    path = tmp_path / "a.sock"
    async with sidecar(path):
        health = await GrpcSidecars().health(f"unix:{path}", "good")
        assert (health.uptime_ms, health.quiet_ms) == (7, None), "an older sidecar does not know how quiet it is"


async def test_a_command_that_is_tried_passes_by_its_end_and_where_the_image_has_none(tmp_path: Path) -> None:
    path = tmp_path / "a.sock"
    async with sidecar(path):

        async def tried(*argv: str) -> str:
            return await GrpcSidecars().tried(f"unix:{path}", "good", argv)

        assert await tried("/bin/true") == ""
        assert await tried("/not/there") == ""
        assert await tried("/bin/false") == "/bin/false exited with 1: it failed"
        # Nothing of this says that the image cannot be started from.
        for program in ("/bin/unreadable", "/bin/late", "/bin/killed", "/bin/126"):
            with pytest.raises(Problem) as caught:
                await tried(program)
            assert (caught.value.code, caught.value.entry.fault) == ("image_pull_failed", "platform")


async def test_a_command_that_is_recorded_is_told_by_its_end_and_fails_by_its_deadline(tmp_path: Path) -> None:
    path = tmp_path / "a.sock"
    async with sidecar(path):

        async def ran(command: str) -> str:
            return await GrpcSidecars().ran(f"unix:{path}", "good", command, 30_000)

        assert await ran("/bin/true") == ""
        assert await ran("/bin/false") == "it exited with 1"
        assert await ran("/bin/out-of-memory") == "it ended with OOM_KILLED (signal 9)"
        for command, code in {"/bin/killed": "exec_deadline", "/bin/late": "sandbox_unreachable"}.items():
            with pytest.raises(Problem) as caught:
                await ran(command)
            assert caught.value.code == code


async def test_a_sidecars_problem_arrives_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.sock"
    async with sidecar(path):
        with pytest.raises(Problem) as caught:
            await GrpcSidecars().health(f"unix:{path}", "bad")
        assert (caught.value.code, caught.value.detail) == ("permission_denied", "the token is for sb-2")
        assert caught.value.details == {"scope": "exec"}


async def test_a_sidecar_that_is_not_there_is_unreachable(tmp_path: Path) -> None:
    with pytest.raises(Problem, match="sandbox_unreachable: the sidecar at unix:"):
        await GrpcSidecars().health(f"unix:{tmp_path}/none.sock", "good")


async def test_the_api_answers_on_a_socket_and_leaves_none_behind(tmp_path: Path) -> None:
    path = tmp_path / "api.sock"
    path.touch()  # stale
    async with (
        world(clock=SystemClock()) as plane,
        serving_http(plane.api.app, Listen(path=path)),
        aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(path))) as session,
    ):
        async with session.get("http://api/healthz") as answer:
            assert answer.status == 200
        async with session.post("http://api/v1/sandboxes", json={"image": "a"}) as answer:
            assert answer.status == 401
            assert answer.content_type == "application/problem+json"
    assert not path.exists()


async def test_a_request_without_end_is_cut_off_and_a_long_body_is_not(tmp_path: Path) -> None:
    path = tmp_path / "door.sock"
    async with world() as plane, serving_http(plane.door.app, Listen(path=path)):
        reader, writer = await asyncio.open_unix_connection(str(path))
        writer.write(b"POST /v1/ready HTTP/1.1\r\nhost: x\r\nendless: ")
        writer.write(b"x" * 100_000)
        assert b"400 Bad Request" in await reader.readline()
        writer.close()
        reader, writer = await asyncio.open_unix_connection(str(path))
        writer.write(b"POST /v1/ready HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\n" + b"x" * 100_000)
        assert b"413" in await reader.readline()
        writer.close()
