"""The played cluster and all its sidecars in one process: holds sandboxes, pushes readiness, answers execs.

    python -m tests.bench.lifecycle.stagehand SOCKET BOOT_MS [egress]

Prints the port of the sidecars when it listens. Control planes speak to it in lines of JSON over the socket. Links of
egress are taken where it is told so; then all calls to sidecars take a hop more.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvloop
from grpc import aio

from controlplane.wire import agent_pb2, agent_pb2_grpc
from tests.bench.lifecycle.links import front

KERNEL = "Linux version 4.19.0-gvisor (played)"
AGAIN_S = 0.05


@dataclass
class Held:
    """One sandbox."""

    record: str
    ready_token: str
    ready_port: int
    address: str
    facts: dict[str, str] = field(default_factory=dict)


class Sidecars(agent_pb2_grpc.AgentServicer):
    """Answers for all sidecars: every command ends with 0 and says nothing. It passes `SidecarsSuite`."""

    async def Exec(self, request: agent_pb2.ExecRequest, _: Any) -> agent_pb2.ExecResult:  # noqa: N802
        return agent_pb2.ExecResult(exec_id=request.exec_id, end=agent_pb2.EXITED, spawn_us=300, run_us=500)

    async def Configure(self, _: agent_pb2.ConfigureRequest, __: Any) -> agent_pb2.Configured:  # noqa: N802
        return agent_pb2.Configured()

    async def Health(self, _: agent_pb2.HealthRequest, context: Any) -> agent_pb2.HealthResponse:  # noqa: N802
        name = subject(dict(context.invocation_metadata())["authorization"])
        return agent_pb2.HealthResponse(sandbox_id=name, kernel=KERNEL, uptime_ms=1000, acknowledged=True)

    async def OpenEgress(self, _: agent_pb2.OpenEgressRequest, __: Any) -> agent_pb2.EgressOpened:  # noqa: N802
        return agent_pb2.EgressOpened()


def subject(bearer: str) -> str:
    """Whose token it is; the real sidecar verifies it."""
    claims = bearer.rpartition(" ")[2].split(".")[1]
    return str(json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["sub"])


class Stagehand:
    """Does what control planes ask for."""

    def __init__(self, boot_s: float, port: int) -> None:
        self._boot_s = boot_s
        self._port = port
        self._held: dict[str, Held] = {}
        self._made = 0
        self._pushes: set[asyncio.Task[None]] = set()

    async def serve(self, lines: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
        """Serve one control plane until it leaves."""
        while line := await lines.readline():
            wish = json.loads(line)
            answer = {"call": wish["call"], "value": self._do(wish)}
            answers.write(json.dumps(answer).encode() + b"\n")
        answers.close()

    def _do(self, wish: dict[str, Any]) -> Any:
        match wish["do"]:
            case "start":
                return self._start(wish)
            case "stop":
                self._held.pop(wish["id"], None)
            case "annotate":
                if wish["id"] in self._held:
                    self._held[wish["id"]].facts.update(wish["facts"])
            case "list":
                return [[name, one.record, one.facts, one.address] for name, one in self._held.items()]
        return None

    def _start(self, wish: dict[str, Any]) -> str:
        name = wish["id"]
        if name not in self._held:
            self._made += 1
            # An address of its own for each, as pods have: all of 127/8 is this machine.
            n = self._made + 256
            address = f"http://127.{n >> 16 & 255}.{n >> 8 & 255}.{n & 255}:{self._port}"
            self._held[name] = Held(wish["record"], wish["ready_token"], wish["ready_port"], address)
            push = asyncio.get_running_loop().create_task(self._get_ready(name, self._held[name]))
            self._pushes.add(push)
            push.add_done_callback(self._pushes.discard)
        return self._held[name].address

    async def _get_ready(self, name: str, one: Held) -> None:
        await asyncio.sleep(self._boot_s)
        while name in self._held and not await self._pushed(name, one):  # noqa: ASYNC110 - as a sidecar does
            await asyncio.sleep(AGAIN_S)

    async def _pushed(self, name: str, one: Held) -> bool:
        status = await self._push(name, one)
        # As a sidecar: done, or refused for good (it was deleted meanwhile); all else is tried again.
        return 200 <= status < 500 and status not in (408, 429)

    async def _push(self, name: str, one: Held) -> int:
        """Push once; the status of the answer, 0 when there was none."""
        body = {"sandbox_id": name, "kernel": KERNEL, "boot_us": {"probed": 3}, "address": one.address}
        text = json.dumps(body)
        head = f"Host: rollbox\r\nAuthorization: Bearer {one.ready_token}\r\nContent-Type: application/json\r\n"
        try:
            answers, requests = await asyncio.open_connection("127.0.0.1", one.ready_port)
        except OSError:
            return 0
        try:
            requests.write(f"POST /v1/ready HTTP/1.1\r\n{head}Content-Length: {len(text)}\r\n\r\n{text}".encode())
            answer = await answers.readline()
        except OSError:
            return 0
        finally:
            requests.close()
        return int(answer.split()[1]) if answer.startswith(b"HTTP/1.1 ") else 0


async def main(socket: Path, boot_ms: float, *, linked: bool = False) -> None:
    """Serve until killed."""
    server = aio.server(options=[("grpc.so_reuseport", 0)])
    agent_pb2_grpc.add_AgentServicer_to_server(Sidecars(), server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("0.0.0.0:0")
    await server.start()
    if linked:
        links = await asyncio.start_server(front(port), "0.0.0.0", 0, backlog=4096)
        port = links.sockets[0].getsockname()[1]
    stagehand = Stagehand(boot_ms / 1000, port)
    async with await asyncio.start_unix_server(stagehand.serve, str(socket), limit=2**26) as listening:
        print(port, flush=True)
        await listening.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(Path(sys.argv[1]), float(sys.argv[2]), linked="egress" in sys.argv[3:]))
