"""What a gateway relies on of a sidecar, over its own protocol: the real one and the fake of the gateway's tests pass
these. Commands are `cat`, `exit` and `sleep`, which the fake has too.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, cast
from uuid import uuid4

import pytest
from grpc import aio

from controlplane.errors import Problem
from controlplane.errors.rpc import DETAILS_KEY
from controlplane.wire import agent_pb2 as agent
from controlplane.wire.agent_pb2_grpc import AgentStub

# Nothing listens there.
CLOSED_PORT = 9


@dataclass(frozen=True)
class Called:
    """A sidecar, and a folder in its sandbox that nothing else uses."""

    stub: Any
    token: str
    folder: str

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        return (("authorization", f"Bearer {self.token}"),)

    def path(self, name: str) -> bytes:
        return f"{self.folder}/{name}".encode()

    async def call(self, method: str, request: Any) -> Any:
        """The answer of a method that has one, or the problem that it has instead."""
        try:
            return await getattr(self.stub, method)(request, metadata=self.metadata)
        except aio.AioRpcError as error:
            return problem_of(error) or error

    async def stream(self, method: str, request: Any) -> tuple[list[Any], Problem | None]:
        """All answers of a method, and the problem that it ends with."""
        answers = []
        try:
            async for answer in getattr(self.stub, method)(request, metadata=self.metadata):
                answers.append(answer)
        except aio.AioRpcError as error:
            return answers, problem_of(error)
        return answers, None

    async def write(self, name: str, parts: Sequence[bytes], *, eof: bool = True) -> Any:
        """Writes a file in these parts; without `eof` it breaks off before its end."""

        async def messages() -> AsyncIterator[agent.WriteFileRequest]:
            yield agent.WriteFileRequest(path=self.path(name))
            for part in parts:
                yield agent.WriteFileRequest(data=part)
            if eof:
                yield agent.WriteFileRequest(eof=True)

        return await self.call("WriteFile", messages())

    async def read(self, name: str, offset: int = 0, length: int = 0) -> tuple[agent.FileInfo, bytes, bytes]:
        """What a read says of the file, its bytes, and the digest at its end."""
        request = agent.ReadFileRequest(path=self.path(name), offset_bytes=offset, length_bytes=length)
        chunks, problem = await self.stream("ReadFile", request)
        assert problem is None
        assert chunks[0].HasField("info")
        return chunks[0].info, b"".join(chunk.data for chunk in chunks), chunks[-1].sha256


def channel(address: str) -> aio.Channel:
    """A channel to a server in Rust: it refuses the path of a Unix socket as the name of a host."""
    return aio.insecure_channel(address, options=(("grpc.default_authority", "localhost"),))


def called(channel: aio.Channel, token: str, folder: str) -> Called:
    return Called(AgentStub(channel), token, folder)  # type: ignore[no-untyped-call]


def problem_of(error: aio.AioRpcError) -> Problem | None:
    """The problem in the details of a status; None for a call that was broken off."""
    pairs = cast("Iterable[tuple[str, str | bytes]]", error.trailing_metadata() or ())
    details = dict(pairs).get(DETAILS_KEY)
    return Problem.decode(details) if isinstance(details, bytes) else None


def moving(source: bytes, target: bytes, *, replace: bool = False) -> agent.MoveFileRequest:
    request = agent.MoveFileRequest(to=target, replace=replace)
    setattr(request, "from", source)  # a word of Python
    return request


def refused(answer: Any, code: str) -> None:
    assert isinstance(answer, Problem), answer
    assert answer.code == code
    assert answer.detail


class AgentSuite:
    """Subclasses have the fixture `sidecar`."""

    @pytest.fixture
    def exec_id(self) -> str:
        return uuid4().hex

    async def test_a_command_ends_with_its_status(self, sidecar: Called, exec_id: str) -> None:
        result = await sidecar.call("Exec", agent.ExecRequest(exec_id=exec_id, command="exit 3"))
        assert (result.exec_id, result.end, result.exit_code, result.signal) == (exec_id, agent.EXITED, 3, 0)
        assert (result.stdout.total_bytes, result.stderr.total_bytes, result.replayed) == (0, 0, False)

    async def test_a_commands_output_is_bytes_and_counted(self, sidecar: Called, exec_id: str) -> None:
        request = agent.ExecRequest(exec_id=exec_id, command="cat", stdin=b"\xff\0hi")
        result = await sidecar.call("Exec", request)
        assert (result.end, result.exit_code) == (agent.EXITED, 0)
        assert (result.stdout.data, result.stdout.total_bytes, result.stdout.truncated) == (b"\xff\0hi", 4, False)

    async def test_a_command_is_started_once_and_fed_by_offsets(self, sidecar: Called, exec_id: str) -> None:
        request = agent.ExecRequest(exec_id=exec_id, command="cat", stdin_open=True)
        started = await sidecar.call("Start", request)
        assert (started.exec_id, started.replayed, started.pid > 0) == (exec_id, False, True)
        assert (await sidecar.call("Start", request)).replayed
        offsets = []
        for data, eof in ((b"ab", False), (b"ab", False), (b"abcd", True)):
            chunk = agent.StdinChunk(exec_id=exec_id, offset=0, data=data, eof=eof)
            offsets.append((await sidecar.call("WriteStdin", chunk)).offset)
        assert offsets == [2, 2, 4], "what was accepted before is not taken twice"
        for begin in (0, 2):
            events, problem = await sidecar.stream("Attach", agent.AttachRequest(exec_id=exec_id, stdout_offset=begin))
            assert problem is None
            position = begin
            for event in events[:-1]:
                assert event.stdout.offset == position
                position += len(event.stdout.data)
            assert b"".join(event.stdout.data for event in events) == b"abcd"[begin:]
            assert (events[-1].result.end, events[-1].result.stdout.total_bytes) == (agent.EXITED, 4)

    async def test_a_signal_ends_a_command(self, sidecar: Called, exec_id: str) -> None:
        await sidecar.call("Start", agent.ExecRequest(exec_id=exec_id, command="sleep 600"))
        await sidecar.call("Signal", agent.SignalRequest(exec_id=exec_id, signal=15))
        events, problem = await sidecar.stream("Attach", agent.AttachRequest(exec_id=exec_id))
        assert problem is None
        assert (events[-1].result.end, events[-1].result.signal) == (agent.SIGNALLED, 15)

    async def test_a_command_is_listed_and_cancelled(self, sidecar: Called, exec_id: str) -> None:
        await sidecar.call("Start", agent.ExecRequest(exec_id=exec_id, command="sleep 600"))
        listed = {one.exec_id: one for one in (await sidecar.call("List", agent.ListRequest())).execs}
        assert (listed[exec_id].running, listed[exec_id].pid > 0) == (True, True)
        result = await sidecar.call("Cancel", agent.CancelRequest(exec_id=exec_id))
        assert (result.exec_id, result.end, result.signal > 0) == (exec_id, agent.CANCELLED, True)

    async def test_all_that_runs_is_cancelled_at_once(self, sidecar: Called, exec_id: str) -> None:
        await sidecar.call("Start", agent.ExecRequest(exec_id=exec_id, command="sleep 600"))
        first, second = [await sidecar.call("CancelAll", agent.CancelAllRequest()) for _ in range(2)]
        assert (first.cancelled >= 1, first.left, second.cancelled, second.left) == (True, 0, 0, 0)
        assert not any(one.running for one in (await sidecar.call("List", agent.ListRequest())).execs)

    async def test_what_runs_nowhere_is_not_found(self, sidecar: Called, exec_id: str) -> None:
        refused(await sidecar.call("Cancel", agent.CancelRequest(exec_id=exec_id)), "exec_not_found")
        refused(await sidecar.call("Signal", agent.SignalRequest(exec_id=exec_id, signal=15)), "exec_not_found")
        refused(await sidecar.call("WriteStdin", agent.StdinChunk(exec_id=exec_id, data=b"a")), "exec_not_found")
        assert (await sidecar.stream("Attach", agent.AttachRequest(exec_id=exec_id)))[0] == []
        refused((await sidecar.stream("Attach", agent.AttachRequest(exec_id=exec_id)))[1], "exec_not_found")

    async def test_a_file_is_written_and_read(self, sidecar: Called) -> None:
        data = bytes(range(256)) * 600
        written = await sidecar.write("a", [data[:70_000], data[70_000:]])
        assert (written.path, written.size_bytes, written.kind) == (sidecar.path("a"), len(data), agent.FILE)
        assert written.sha256 == sha256(data).digest()
        info, read, digest = await sidecar.read("a")
        assert (info.size_bytes, read, digest) == (len(data), data, sha256(data).digest())
        _, part, digest = await sidecar.read("a", offset=300, length=100)
        assert (part, digest) == (data[300:400], sha256(data[300:400]).digest())
        stat = await sidecar.call("StatFile", agent.PathRequest(path=sidecar.path("a")))
        assert (stat.path, stat.size_bytes, stat.kind) == (sidecar.path("a"), len(data), agent.FILE)

    async def test_a_write_that_breaks_off_writes_nothing(self, sidecar: Called) -> None:
        assert isinstance(await sidecar.write("half", [b"some"], eof=False), Exception)
        refused(await sidecar.call("StatFile", agent.PathRequest(path=sidecar.path("half"))), "file_not_found")

    async def test_what_is_not_there_is_not_found(self, sidecar: Called) -> None:
        path = sidecar.path("none")
        refused(await sidecar.call("StatFile", agent.PathRequest(path=path)), "file_not_found")
        refused((await sidecar.stream("ReadFile", agent.ReadFileRequest(path=path)))[1], "file_not_found")
        refused((await sidecar.stream("ListDirectory", agent.ListDirectoryRequest(path=path)))[1], "file_not_found")
        refused(await sidecar.call("RemoveFile", agent.RemoveFileRequest(path=path)), "file_not_found")
        refused(await sidecar.call("MoveFile", moving(path, path)), "file_not_found")
        assert (await sidecar.call("RemoveFile", agent.RemoveFileRequest(path=path, missing_ok=True))).count == 0

    async def test_a_file_is_copied_moved_and_removed(self, sidecar: Called) -> None:
        one, two, three = (sidecar.path(name) for name in ("one", "two", "three"))
        await sidecar.write("one", [b"1"])
        copied = await sidecar.call("CopyFile", moving(one, two))
        assert (copied.path, copied.size_bytes) == (two, 1)
        refused(await sidecar.call("MoveFile", moving(one, two)), "conflict")
        moved = await sidecar.call("MoveFile", moving(one, two, replace=True))
        assert moved.path == two
        await sidecar.call("MoveFile", moving(two, three))
        listed, problem = await sidecar.stream(
            "ListDirectory", agent.ListDirectoryRequest(path=sidecar.folder.encode(), limit=100)
        )
        assert problem is None
        assert [info.path for info in listed] == [three]
        assert (await sidecar.call("RemoveFile", agent.RemoveFileRequest(path=three))).count == 1
        refused(await sidecar.call("StatFile", agent.PathRequest(path=three)), "file_not_found")

    async def test_a_directory_is_made(self, sidecar: Called) -> None:
        made = await sidecar.call("MakeDirectory", agent.MakeDirectoryRequest(path=sidecar.path("d"), mode=0o750))
        assert (made.path, made.kind, made.mode & 0o777) == (sidecar.path("d"), agent.DIRECTORY, 0o750)

    async def test_a_watch_says_first_that_it_watches(self, sidecar: Called) -> None:
        await sidecar.write("a", [b"1"])
        watch = sidecar.stub.WatchFiles(agent.WatchRequest(path=sidecar.folder.encode()), metadata=sidecar.metadata)
        event = await watch.read()
        assert event.change == agent.WATCHING
        watch.cancel()

    async def test_where_nothing_listens_is_told_apart(self, sidecar: Called) -> None:
        waited = await sidecar.call("WaitPort", agent.WaitPortRequest(port=CLOSED_PORT, timeout_ms=1))
        assert not waited.listening

        async def frames() -> AsyncIterator[agent.PortFrame]:
            yield agent.PortFrame(port=CLOSED_PORT)

        answers, problem = await sidecar.stream("Connect", frames())
        assert answers == []
        refused(problem, "port_unreachable")

    async def test_binding_is_safe_to_repeat(self, sidecar: Called) -> None:
        request = agent.ConfigureRequest(env={"A": "1"})
        for _ in range(2):
            assert isinstance(await sidecar.call("Configure", request), agent.Configured)

    async def test_usage_is_measured(self, sidecar: Called) -> None:
        usage = await sidecar.call("Usage", agent.UsageRequest())
        assert usage.memory_bytes > 0
        assert usage.processes >= 0
