"""The fake gateway's processes: scripted ones, or real ones of this machine, behind the WebSocket of the contract."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import struct
import termios
from base64 import b64decode
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from aiohttp import WSMsgType, web

from tests.support.fake_abandon import abandon

HEAD = struct.Struct(">BQ")
STDOUT, STDERR = 1, 2


@dataclass
class Script:
    """What a command writes, and how it ends; with `hold` not before its open stdin does, without one never."""

    stdout: bytes = b""
    stderr: bytes = b""
    exit_code: int | None = 0
    hold: bool = False
    end: str = "exited"
    signal: int | None = None
    lost_bytes: int = 0

    @classmethod
    def of(cls, result: dict[str, Any]) -> Script:
        """A script with this result of an exec."""
        raw = result.get("stdout", "")
        stdout = b64decode(raw) if result.get("stdout_encoding") == "base64" else raw.encode()
        code = result.get("exit_code", 0)
        end, number = result.get("end", "exited"), result.get("signal")
        lost = max(0, result.get("stdout_total_bytes", 0) - len(stdout))
        return cls(stdout, result.get("stderr", "").encode(), code, end=end, signal=number, lost_bytes=lost)


@dataclass
class FakeExec:
    """One command: all it wrote, from where on it is kept, and its end."""

    exec_id: str
    body: dict[str, Any]
    outputs: dict[int, bytearray] = field(default_factory=lambda: {STDOUT: bytearray(), STDERR: bytearray()})
    kept_from: dict[int, int] = field(default_factory=lambda: {STDOUT: 0, STDERR: 0})
    stdin: bytearray = field(default_factory=bytearray)
    stdin_over: bool = False
    fed: int = 0
    sizes: list[tuple[int, int]] = field(default_factory=list)
    signals: list[tuple[int, bool]] = field(default_factory=list)
    result: dict[str, Any] | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    process: asyncio.subprocess.Process | None = None
    tells_pid: bool = False
    oom_kills: int = 0

    def tell(self) -> None:
        """Wake who waits for a change."""
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()

    def end(self, exit_code: int | None, end: str = "exited", number: int | None = None) -> None:
        """Record the end, once."""
        if self.result is None:
            totals = {f"{name}_total_bytes": len(self.outputs[kind]) for name, kind in (("stdout", 1), ("stderr", 2))}
            self.result = {"exec_id": self.exec_id, "end": end, "exit_code": exit_code, "signal": number, **totals}
            self.tell()


@dataclass
class FakeProcesses:
    """All commands.

    Attributes:
        scripts: by command line; without one a real process runs.
        cuts: for each attach: after how many bytes its connection breaks; None or none left: never.
        message_bytes: how large an output message is.
        problems: for each attach: a problem to tell instead of anything else.
        silent_acks: do not acknowledge stdin.
        hold_starts: a spawn is not answered.
        heartbeat_s: between pings to attached clients; None: no pings.
    """

    scripts: dict[str, Script] = field(default_factory=dict)
    execs: dict[str, FakeExec] = field(default_factory=dict)
    cuts: deque[int | None] = field(default_factory=deque)
    problems: deque[dict[str, Any]] = field(default_factory=deque)
    message_bytes: int = 2**16
    attaches: list[tuple[int, int]] = field(default_factory=list)
    silent_acks: bool = False
    hold_starts: bool = False
    heartbeat_s: float | None = None
    started: asyncio.Event = field(default_factory=asyncio.Event)
    close_code: int = 1000
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def start(self, body: dict[str, Any]) -> FakeExec:
        """Start a command; the same id joins."""
        known = self.execs.get(body["exec_id"])
        if known is not None:
            return known
        made = self.execs[body["exec_id"]] = FakeExec(body["exec_id"], body)
        self.started.set()
        script = self.scripts.get(body.get("command") or " ".join(body.get("argv", ())))
        given = body.get("stdin", "")
        made.stdin += b64decode(given) if body.get("stdin_encoding") == "base64" else given.encode()
        made.stdin_over = not body.get("stdin_open")
        task = asyncio.get_running_loop().create_task(self._play(made, script) if script else self._run(made))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return made

    async def _play(self, made: FakeExec, script: Script) -> None:
        made.tells_pid = True
        made.outputs[STDOUT] += bytes(script.lost_bytes) + script.stdout
        made.kept_from[STDOUT] = script.lost_bytes
        made.outputs[STDERR] += script.stderr
        made.tell()
        while script.hold and made.result is None and not (made.body.get("stdin_open") and made.stdin_over):
            await made.changed.wait()
        made.end(script.exit_code, script.end, script.signal)

    async def _run(self, made: FakeExec) -> None:
        body, pipe = made.body, asyncio.subprocess.PIPE
        argv = body.get("argv") or ["sh", "-c", body["command"]]
        env = {**os.environ, **body.get("env", {})}
        if "terminal" in body:
            await self._run_on_terminal(made, argv, env)
            return
        process = made.process = await asyncio.create_subprocess_exec(
            *argv, stdin=pipe, stdout=pipe, stderr=pipe, env=env, cwd=body.get("cwd"), start_new_session=True
        )
        assert process.stdout
        assert process.stderr
        assert process.stdin
        made.tell()
        try:
            async with asyncio.TaskGroup() as group:
                readers = [
                    group.create_task(self._drain(made, kind, stream))
                    for kind, stream in ((STDOUT, process.stdout), (STDERR, process.stderr))
                ]
                feeder = group.create_task(self._feed(made, process.stdin))
                code = await process.wait()
                # A daemon may hold the pipes open: what the command itself wrote has come once nothing more comes.
                before = -1
                for _ in range(50):
                    if before == (before := sum(map(len, made.outputs.values()))):
                        break
                    # speed: what the pipes hold is read before any time passes
                    await asyncio.wait(readers, timeout=0.2)
                for task in (*readers, feeder):
                    task.cancel()
        finally:
            # Nobody reads what is left: a pipe that waits for a reader stays open past the loop's end.
            if process.stdin.transport.get_write_buffer_size():
                process.stdin.transport.abort()
        made.end(code if code >= 0 else None, "exited" if code >= 0 else "signalled", -code if code < 0 else None)

    async def _run_on_terminal(self, made: FakeExec, argv: list[str], env: dict[str, str]) -> None:
        master, slave = os.openpty()
        os.set_blocking(master, False)
        size = made.body["terminal"]
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", size["rows"], size["columns"], 0, 0))
        process = made.process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=env,
            cwd=made.body.get("cwd"),
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(slave)
        made.tell()
        loop = asyncio.get_running_loop()

        def read() -> None:
            with suppress(BlockingIOError):
                try:
                    made.outputs[STDOUT] += os.read(master, 2**16)
                except OSError:  # EIO: nobody has it open any more
                    loop.remove_reader(master)
                made.tell()

        async def feed() -> None:
            while True:
                if made.fed < len(made.stdin):
                    with suppress(BlockingIOError):
                        made.fed += os.write(master, bytes(made.stdin[made.fed : made.fed + 1000]))
                        made.tell()
                    await asyncio.sleep(0)
                else:
                    await made.changed.wait()

        loop.add_reader(master, read)
        feeding = asyncio.ensure_future(feed())
        try:
            code = await process.wait()
            read()
        finally:
            feeding.cancel()
            loop.remove_reader(master)
            os.close(master)
        made.end(code if code >= 0 else None, "exited" if code >= 0 else "signalled", -code if code < 0 else None)

    async def _drain(self, made: FakeExec, kind: int, stream: asyncio.StreamReader) -> None:
        while data := await stream.read(2**16):
            made.outputs[kind] += data
            made.tell()

    async def _feed(self, made: FakeExec, stdin: asyncio.StreamWriter) -> None:
        sent = 0
        # What waits here is not in the pipe yet, and not acknowledged.
        stdin.transport.set_write_buffer_limits(0)
        with suppress(ConnectionError):
            while True:
                stdin.write(bytes(made.stdin[sent:]))
                sent = len(made.stdin)
                await stdin.drain()
                made.fed = sent
                made.tell()
                if len(made.stdin) > sent:
                    continue
                if made.stdin_over:
                    stdin.close()
                    return
                await made.changed.wait()

    def kill(self, made: FakeExec) -> None:
        """Kill it; its end is cancelled."""
        if made.process is not None and made.process.returncode is None:
            _kill_session(made.process.pid)
        made.end(None, "cancelled", 9)

    def signal(self, made: FakeExec, number: int, tree: bool) -> None:
        """Send a signal."""
        made.signals.append((number, tree))
        if made.process is not None:
            made.process.send_signal(number)

    def abandon(self, made: FakeExec, number: int, command_id: str, spared: list[int]) -> None:
        """Kill what a command of a shell has started, as a sidecar does, and continue the shell with the signal."""
        assert made.process
        abandon(made.process.pid, number, command_id, set(spared), on_terminal="terminal" in made.body)

    async def attach(self, request: web.Request, made: FakeExec) -> web.StreamResponse:
        """Serve one WebSocket."""
        offsets = {STDOUT: int(request.query["stdout_offset"]), STDERR: int(request.query["stderr_offset"])}
        self.attaches.append((offsets[STDOUT], offsets[STDERR]))
        socket = web.WebSocketResponse(max_msg_size=2**20, heartbeat=self.heartbeat_s)
        await socket.prepare(request)
        if self.problems:
            await socket.send_json({"type": "problem", **self.problems.popleft()})
            await socket.close()
            return socket
        budget = self.cuts.popleft() if self.cuts else None
        hearing = asyncio.ensure_future(self._hear(socket, made))
        try:
            whole = await self._tell_all(socket, made, offsets, budget, hearing)
        finally:
            hearing.cancel()
        if not whole:
            assert request.transport is not None
            request.transport.abort()
        return socket

    async def _tell_all(
        self,
        socket: web.WebSocketResponse,
        made: FakeExec,
        offsets: dict[int, int],
        budget: int | None,
        hearing: asyncio.Future[None],
    ) -> bool:
        """Send all that is there and comes; False when the connection is to break."""
        while not socket.closed and not hearing.done():
            changed, sent = made.changed, False
            for kind, at in offsets.items():
                start = offsets[kind] = max(at, made.kept_from[kind])
                data = bytes(made.outputs[kind][start : start + self.message_bytes])
                if budget is not None and data:
                    # Breaks in the middle of a message too: what arrives is whole or nothing.
                    budget -= len(data)
                    if budget < 0:
                        return False
                if data:
                    await socket.send_bytes(HEAD.pack(kind, start) + data)
                    offsets[kind] = start + len(data)
                    sent = True
            if sent:
                continue
            if made.result is not None and all(offsets[kind] >= len(made.outputs[kind]) for kind in offsets):
                if budget is not None:
                    return False
                await socket.send_json({"type": "result", **made.result})
                await socket.close(code=self.close_code)
                return True
            waiting = asyncio.ensure_future(changed.wait())
            ends: list[asyncio.Future[Any]] = [waiting, hearing]
            try:
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            finally:
                waiting.cancel()
        return True

    async def _hear(self, socket: web.WebSocketResponse, made: FakeExec) -> None:
        async for message in socket:
            if message.type is WSMsgType.BINARY:
                _, offset = HEAD.unpack_from(message.data)
                data = message.data[HEAD.size :]
                assert offset <= len(made.stdin), "a hole in stdin"
                made.stdin += data[len(made.stdin) - offset :]
                made.tell()
                while made.process is not None and made.result is None and made.fed < len(made.stdin):
                    await made.changed.wait()
                if not self.silent_acks:
                    await socket.send_json({"type": "stdin", "offset": len(made.stdin)})
            elif message.type is WSMsgType.TEXT:
                self._control(made, json.loads(message.data))

    def _control(self, made: FakeExec, body: dict[str, Any]) -> None:
        match body["type"]:
            case "stdin_eof":
                assert body["offset"] == len(made.stdin), "eof before all of stdin"
                made.stdin_over = True
                made.tell()
            case "signal":
                self.signal(made, body["signal"], body["tree"])
            case "resize":
                made.sizes.append((body["columns"], body["rows"]))
                made.tell()

    def summaries(self) -> list[dict[str, Any]]:
        """The list as the gateway gives it."""
        return [
            {
                "exec_id": made.exec_id,
                "argv": made.body.get("argv") or [made.body.get("command", "")],
                "pid": made.process.pid if made.process else 1,
                "started_at_ms": 1,
                "running": made.result is None,
                "end": made.result and made.result["end"],
                "exit_code": made.result and made.result["exit_code"],
                "stdout_bytes": len(made.outputs[STDOUT]),
                "stderr_bytes": len(made.outputs[STDERR]),
                "ended_at_ms": None if made.result is None else 2,
                "oom_kills": made.oom_kills if made.result is None else None,
            }
            for made in reversed(self.execs.values())
        ]

    async def aclose(self) -> None:
        """End all."""
        for made in self.execs.values():
            if made.process is not None:
                _kill_session(made.process.pid)
        tasks = list(self.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for made in self.execs.values():
            if made.process is not None:
                await made.process.wait()
                made.process._transport.close()  # type: ignore[attr-defined]


def _kill_session(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
