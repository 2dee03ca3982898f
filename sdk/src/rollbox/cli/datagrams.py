"""UDP port forwarding: one connection to the sandbox for each local sender."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Final, TypeAlias

from rollbox._problem import SandboxError
from rollbox.cli import output
from rollbox.sandbox import Sandbox

Address: TypeAlias = tuple[str, int]
OnListening: TypeAlias = Callable[[int], None]
"""Called with the local port that was bound."""

# A flow without a datagram in either direction for so long is dropped, as by a NAT router.
_IDLE_S: Final = 60.0
# Flows at one time, and queued datagrams of each: more are dropped, as on any full link.
_MOST_FLOWS: Final = 64
_QUEUE: Final = 64


async def forward_datagrams(
    sandbox: Sandbox, local: Address, port: int, listening: OnListening, stop: asyncio.Event
) -> None:
    """Forward datagrams until `stop` is set.

    Args:
        sandbox: that receives them.
        local: host and port to bind here; port 0 is a free one.
        port: in the sandbox.
        listening: called with the port that is bound here.
        stop: ends the call.

    Raises:
        OSError: the address cannot be bound.
    """
    # Before the task group, which would wrap the error of a port in use in an ExceptionGroup.
    taken = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        taken.bind(local)
    except OSError:
        taken.close()
        raise
    async with asyncio.TaskGroup() as group:
        flows = _Flows(sandbox, port, group)
        transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(lambda: flows, sock=taken)
        try:
            listening(taken.getsockname()[1])
            await stop.wait()
        finally:
            transport.close()
            flows.end()


class _Flows(asyncio.DatagramProtocol):
    def __init__(self, sandbox: Sandbox, port: int, group: asyncio.TaskGroup) -> None:
        self._sandbox = sandbox
        self._port = port
        self._group = group
        self._queues: dict[Address, asyncio.Queue[bytes]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.DatagramTransport) -> None:  # type: ignore[override]
        self._transport = transport

    def datagram_received(self, data: bytes, peer: Address) -> None:
        queue = self._queues.get(peer)
        if queue is None and len(self._queues) < _MOST_FLOWS:
            queue = self._queues[peer] = asyncio.Queue(_QUEUE)
            self._tasks.add(task := self._group.create_task(self._flow(peer, queue)))
            task.add_done_callback(self._tasks.discard)
        if queue is not None and not queue.full():
            queue.put_nowait(data)

    def end(self) -> None:
        """Cancel all flows."""
        for task in self._tasks:
            task.cancel()

    async def _flow(self, peer: Address, queue: asyncio.Queue[bytes]) -> None:
        try:
            async with await self._sandbox.ports.connect_udp(self._port) as datagrams, asyncio.timeout(_IDLE_S) as idle:

                def moved() -> None:
                    idle.reschedule(asyncio.get_running_loop().time() + _IDLE_S)

                async def up() -> None:
                    while True:
                        await datagrams.send(await queue.get())
                        moved()

                async def down() -> None:
                    while self._transport is not None:
                        self._transport.sendto(await datagrams.receive(), peer)
                        moved()

                async with asyncio.TaskGroup() as both:
                    both.create_task(up())
                    both.create_task(down())
        except* SandboxError as group:
            output.message(f"forwarding datagrams of {peer[0]}:{peer[1]} ended: {group.exceptions[0]}")
        except* TimeoutError:
            pass
        finally:
            del self._queues[peer]
