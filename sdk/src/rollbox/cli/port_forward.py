"""`rollbox port-forward`: a port of this machine that leads to one of a sandbox."""

from __future__ import annotations

import contextlib
import errno
import signal
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from rollbox._problem import SandboxError
from rollbox.cli import output
from rollbox.errors import InvalidArgument

if TYPE_CHECKING:
    import asyncio

    from rollbox import ports
    from rollbox.cli.datagrams import OnListening
    from rollbox.client import Client
    from rollbox.sandbox import Sandbox

_HOST = "127.0.0.1"
_CHUNK_BYTES = 2**16


def port_forward(
    sandbox_id: Annotated[str, typer.Argument(metavar="ID", help="The sandbox.")],
    wanted: Annotated[str, typer.Argument(metavar="[LOCAL:]PORT", help="8000, or 8080:8000; 0:8000 takes a free one.")],
    *,
    udp: Annotated[bool, typer.Option("--udp", help="Datagrams instead of TCP.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print where it listens as JSON.")] = False,
) -> None:
    """Listen on 127.0.0.1 and forward every connection to a port of a sandbox, until Ctrl-C."""

    async def call(client: Client) -> None:
        import asyncio

        from rollbox.cli.datagrams import forward_datagrams

        local, port = _ports(wanted)
        sandbox = await client.connect(sandbox_id)
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)

        def listening(taken: int) -> None:
            if json:
                output.data({"host": _HOST, "port": taken, "sandbox_id": sandbox_id, "sandbox_port": port})
            output.message(f"{_HOST}:{taken} is forwarded to port {port} of {sandbox_id}; Ctrl-C ends it")

        try:
            if udp:
                await forward_datagrams(sandbox, (_HOST, local), port, listening, stop)
            else:
                await _forward(sandbox, local, port, listening, stop)
        except OSError as error:
            _refuse(local, error)

    output.run(call, what=f"forwarding {wanted} of {sandbox_id}", as_json=json)


def _ports(text: str) -> tuple[int, int]:
    from rollbox import ports

    local, colon, port = text.rpartition(":")
    if not (port.isascii() and port.isdigit()) or (colon and not (local.isascii() and local.isdigit())):
        raise InvalidArgument(f"{text!r} is not [LOCAL:]PORT, like 8000 or 8080:8000")
    wanted = ports.checked(int(port))
    mine = int(local) if colon else wanted
    return (mine if mine == 0 else ports.checked(mine)), wanted


def _refuse(local: int, error: OSError) -> NoReturn:
    if error.errno == errno.EADDRINUSE:
        hint = "Give another port of this machine before the colon, like 0:8000 for any free one."
        raise InvalidArgument(f"port {local} of this machine is in use", hint=hint) from error
    raise InvalidArgument(f"cannot listen on port {local} of this machine: {error.strerror}") from error


async def _forward(sandbox: Sandbox, local: int, port: int, listening: OnListening, stop: asyncio.Event) -> None:
    import asyncio
    import socket

    # Before the task group, which would wrap the error of a port in use in an ExceptionGroup.
    taken = socket.create_server((_HOST, local))
    async with asyncio.TaskGroup() as connections:

        def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            tasks.add(task := connections.create_task(_pass_on(sandbox, port, reader, writer)))
            task.add_done_callback(tasks.discard)

        tasks: set[asyncio.Task[None]] = set()
        server = await asyncio.start_server(accepted, sock=taken)
        try:
            listening(taken.getsockname()[1])
            await stop.wait()
        finally:
            server.close()
            for task in tasks:
                task.cancel()


async def _pass_on(sandbox: Sandbox, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Forward one connection; its failure is printed, and the others go on."""
    import asyncio

    try:
        async with await sandbox.ports.connect_tcp(port) as stream, asyncio.TaskGroup() as both:
            both.create_task(_up(reader, stream))
            both.create_task(_down(stream, writer))
    except* SandboxError as group:
        output.message(f"a connection ended: {group.exceptions[0]}")
        writer.transport.abort()
    except* OSError:
        # The local client has closed its connection.
        writer.transport.abort()
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def _up(reader: asyncio.StreamReader, stream: ports.PortStream) -> None:
    while data := await reader.read(_CHUNK_BYTES):
        await stream.write(data)
    await stream.write_eof()


async def _down(stream: ports.PortStream, writer: asyncio.StreamWriter) -> None:
    while data := await stream.read():
        writer.write(data)
        await writer.drain()
    writer.write_eof()
