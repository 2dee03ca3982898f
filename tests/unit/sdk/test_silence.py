"""Silent connections are detected by timeouts, and a program that reads too slowly gets an error that says so."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

import pytest
from aiohttp import AddrInfoType, WSMsgType, web

from rollbox import Client, transport
from rollbox.errors import StreamInterrupted
from tests.support import fake_ports
from tests.support.cutting import cutting
from tests.support.fake_processes import FakeExec, Script
from tests.support.gateway_fake import API_KEY, FakeGateway, Fault, serving
from tests.support.virtual_time import VirtualTimeLoop


def virtual(scene: Callable[[FakeGateway, Client], Awaitable[None]]) -> None:
    """Run a scene with a fake gateway and its client in virtual time, which jumps when there is no traffic."""

    async def played() -> None:
        async with serving() as fake, Client(fake.url, API_KEY) as client:
            await scene(fake, client)

    with asyncio.Runner(loop_factory=lambda: VirtualTimeLoop(wire_s=0.05)) as runner:
        runner.run(played())


def now() -> float:
    return asyncio.get_running_loop().time()


def test_an_attach_that_falls_silent_is_made_again() -> None:
    async def scene(fake: FakeGateway, client: Client) -> None:
        fake.processes.scripts["x"] = Script(b"out", hold=True)
        async with await (await client.create("python")).spawn("x", exec_id="e1") as process:
            assert await process.stdout.next_bytes() == b"out"
            waiting = asyncio.create_task(process.wait())
            await asyncio.sleep(14)
            assert len(fake.processes.attaches) == 1
            await asyncio.sleep(2)
            fake.processes.execs["e1"].end(7)
            assert (await waiting).exit_code == 7
        assert fake.processes.attaches[1] == (3, 0)

    virtual(scene)


def test_a_gateway_that_stays_silent_is_given_up_with_where_to_go_on() -> None:
    async def scene(fake: FakeGateway, client: Client) -> None:
        fake.processes.scripts["x"] = Script(b"out", hold=True)
        process = await (await client.create("python")).spawn("x", exec_id="e1")
        began = now()
        with pytest.raises(StreamInterrupted) as given_up:
            await process.wait()
        assert 60 < now() - began < 90
        assert "60 s" in given_up.value.detail
        assert "attach('e1', stdout_offset=0, stderr_offset=0)" in given_up.value.hint
        await process.aclose()

    virtual(scene)


def test_a_quiet_command_outlives_breaks_that_are_far_apart() -> None:
    async def scene(fake: FakeGateway, client: Client) -> None:
        fake.processes.scripts["x"] = Script(hold=True)
        fake.processes.heartbeat_s = 5.0
        async with cutting(fake.url, seed=1, mean_bytes=0) as network, Client(network.url, API_KEY) as through:
            sandbox = await through.connect((await client.create("python")).id)
            process = await sandbox.spawn("x", exec_id="e1")
            waiting = asyncio.create_task(process.wait())
            for _ in range(3):
                await asyncio.sleep(100)
                network.cut()
            await asyncio.sleep(100)
            fake.processes.execs["e1"].end(0)
            assert (await waiting).ok
            assert len(fake.processes.attaches) == 4

    virtual(scene)


def test_a_watch_that_falls_silent_is_made_again_and_says_so() -> None:
    async def scene(fake: FakeGateway, client: Client) -> None:
        changes = (await client.create("python")).files.watch("/")
        began = now()
        seen = [(await anext(changes)).change for _ in range(3)]
        assert seen == ["watching", "overflowed", "watching"]
        assert 14 < now() - began < 17
        await changes.aclose()

    virtual(scene)


def test_a_program_that_does_not_read_a_port_lives_and_is_told_why_it_was_cut_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pings = 0

    async def flood(request: web.Request) -> web.StreamResponse:
        nonlocal pings
        socket = web.WebSocketResponse(autoping=False)
        await socket.prepare(request)
        for _ in range(80):
            await socket.send_bytes(bytes(1000))
        # As the gateway does: pings are signs of life, but after 30 s a reader that takes nothing is cut off.
        while (await socket.receive()).type is WSMsgType.PING and pings < 8:
            pings += 1
        assert request.transport is not None
        request.transport.abort()
        return socket

    monkeypatch.setattr(fake_ports, "tcp", flood)

    async def scene(fake: FakeGateway, client: Client) -> None:
        sandbox = await client.create("python")
        async with await sandbox.ports.connect_tcp(8000) as stream:
            await asyncio.sleep(50)
            assert pings == 8
            for _ in range(80):
                assert await stream.read(1000)
            with pytest.raises(StreamInterrupted) as cut:
                await stream.read(1000)
        assert "nothing was read here for" in cut.value.detail
        assert "read all the time" in cut.value.detail
        assert cut.value.hint.startswith("Connect again")

    virtual(scene)


def test_what_the_gateway_tells_a_slow_reader_of_a_port_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    async def cut_off(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        problem = {
            "type": "problem",
            "code": "stream_interrupted",
            "detail": "took nothing",
            "hint": "the same exec_id",
        }
        await socket.send_json(problem)
        await socket.close(code=1008)
        return socket

    monkeypatch.setattr(fake_ports, "tcp", cut_off)

    async def scene(fake: FakeGateway, client: Client) -> None:
        sandbox = await client.create("python")
        async with await sandbox.ports.connect_tcp(8000) as stream:
            with pytest.raises(StreamInterrupted, match="took nothing") as cut:
                await stream.read()
        assert cut.value.hint.startswith("Connect again")
        assert cut.value.sandbox_id == sandbox.id

    virtual(scene)


def small_buffers(monkeypatch: pytest.MonkeyPatch, wanted: Callable[[], bool]) -> None:
    """Make writes block soon. Not for connections that are read: small buffers make the kernel wait for ACKs there."""
    make = transport._socket

    def small(address: AddrInfoType) -> socket.socket:
        made = make(address)
        if wanted():
            made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**14)
        return made

    monkeypatch.setattr(transport, "_socket", small)


async def deaf(request: web.Request) -> web.StreamResponse:
    """Read nothing and send nothing, like a machine that has vanished."""
    connected = web.WebSocketResponse()
    await connected.prepare(request)
    assert request.transport is not None
    request.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**14)
    request.transport.pause_reading()
    await asyncio.sleep(200)
    request.transport.abort()
    return connected


def test_a_write_to_a_port_ends_when_the_gateway_falls_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    small_buffers(monkeypatch, lambda: True)
    monkeypatch.setattr(fake_ports, "tcp", deaf)

    async def scene(fake: FakeGateway, client: Client) -> None:
        sandbox = await client.create("python")
        began = now()
        async with await sandbox.ports.connect_tcp(8000) as stream:
            with pytest.raises(StreamInterrupted, match="sent nothing for 15 s"):
                async with asyncio.timeout(100):
                    await stream.write(bytes(2**23))
        assert 14 < now() - began < 20

    virtual(scene)


@pytest.mark.parametrize("waits", [False, True])
def test_a_write_to_stdin_goes_on_elsewhere_when_the_gateway_falls_silent(
    monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    silent = 2
    small_buffers(monkeypatch, lambda: silent > 0)

    async def scene(fake: FakeGateway, client: Client) -> None:
        attach = fake.processes.attach

        async def attached(request: web.Request, made: FakeExec) -> web.StreamResponse:
            nonlocal silent
            silent -= 1
            return await (deaf(request) if silent >= 0 else attach(request, made))

        monkeypatch.setattr(fake.processes, "attach", attached)
        fake.processes.scripts["x"] = Script(hold=True)
        data = bytes(range(256)) * 2**14
        async with await (await client.create("python")).spawn("x", stdin=True, exec_id="e1") as process:
            waiting = [asyncio.create_task(process.wait())] if waits else []
            async with asyncio.timeout(100):
                await process.stdin.write(data)
                await process.stdin.write_eof()
                await asyncio.gather(*waiting)
                assert (await process.wait()).ok
        assert bytes(fake.processes.execs["e1"].stdin) == data

    virtual(scene)


def test_a_cut_long_after_a_slow_read_is_not_blamed_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def flood(request: web.Request) -> web.StreamResponse:
        connected = web.WebSocketResponse()
        await connected.prepare(request)
        for _ in range(80):
            await connected.send_bytes(bytes(1000))
        for _ in range(40):
            await asyncio.sleep(5)
            await connected.ping()
        assert request.transport is not None
        request.transport.abort()
        return connected

    monkeypatch.setattr(fake_ports, "tcp", flood)

    async def scene(fake: FakeGateway, client: Client) -> None:
        async with await (await client.create("python")).ports.connect_tcp(8000) as stream:
            await asyncio.sleep(50)
            for _ in range(80):
                assert await stream.read(1000)
            with pytest.raises(StreamInterrupted) as cut:
                await stream.read(1000)
        assert "nothing was read here" not in cut.value.detail

    virtual(scene)


async def test_the_kernel_limits_what_nobody_confirms_but_not_how_long_a_stream_may_wait(
    client: Client, fake: FakeGateway
) -> None:
    with transport._socket((socket.AF_INET, socket.SOCK_STREAM, 0, "", ("", 0))) as made:
        assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 30_000
    fake.processes.scripts["x"] = Script(hold=True)
    sandbox = await client.create("python")
    await (await sandbox.spawn("x", exec_id="e1")).aclose()
    connected = await client.gateway.attach(sandbox._access, "e1", (0, 0))
    assert connected.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 0
    await connected.close()


def standing_still(monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[FakeGateway, str], None]) -> list[float]:
    """The first exec is never answered, as by a stopped gateway; returns when each exec has come."""
    came: list[float] = []
    answered = FakeGateway._exec

    async def served(self: FakeGateway, request: web.Request) -> web.Response:
        came.append(now())
        if len(came) > 1:
            return await answered(self, request)
        meanwhile(self, (await request.json())["exec_id"])
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(FakeGateway, "_exec", served)
    return came


def test_an_exec_that_a_stopped_gateway_has_not_read_goes_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    came = standing_still(monkeypatch, lambda *_: None)

    async def scene(fake: FakeGateway, client: Client) -> None:
        assert (await (await client.create("python")).exec("x", timeout=600)).ok
        assert 15 < came[1] - came[0] < 25
        assert len(fake.runs) == 1

    virtual(scene)


def test_the_result_that_a_stopped_gateway_keeps_is_got_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    def ends_later(fake: FakeGateway, exec_id: str) -> None:
        made = FakeExec(exec_id, {})
        fake.processes.execs[exec_id] = made
        fake.execs[exec_id] = {"exec_id": exec_id, "end": "exited", "exit_code": 7, "stdout": "", "stderr": ""}
        asyncio.get_running_loop().call_later(100, made.end, 7)

    came = standing_still(monkeypatch, ends_later)

    async def scene(fake: FakeGateway, client: Client) -> None:
        assert (await (await client.create("python")).exec("x")).exit_code == 7
        # Asked after 15, 45 and 105 s.
        assert 105 < came[1] - came[0] < 115
        assert fake.count("GET", "/execs") == 3
        assert fake.runs == []

    virtual(scene)


def test_a_command_that_runs_long_is_not_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(fake: FakeGateway, client: Client) -> None:
        fake.real_execs = True
        fake.processes.scripts["x"] = Script(hold=True)
        running = asyncio.create_task((await client.create("python")).exec("x", exec_id="e1", timeout=None))
        await asyncio.sleep(600)
        assert fake.count("POST", "/exec") == 1
        fake.processes.execs["e1"].end(0)
        assert (await running).ok

    virtual(scene)


def test_a_question_that_nobody_answers_says_nothing_of_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    came = standing_still(monkeypatch, lambda *_: None)

    async def scene(fake: FakeGateway, client: Client) -> None:
        fake.fail("execs", Fault("upstream_timeout"), Fault("draining"))
        assert (await (await client.create("python")).exec("x")).ok
        assert 105 < came[1] - came[0] < 115

    virtual(scene)
