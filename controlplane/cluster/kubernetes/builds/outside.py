"""``Outside``: the way of a build's steps to the network, by a sandbox of their owner that is there for the build.

A builder's pod reaches nothing. What its steps connect to at the port of a relay it hands to the control plane, which
carries the bytes to the relay of that sandbox, and that to egress, as of any command there. A sidecar opens no
connection to its own relay for anybody, so a program in the sandbox does: the builder's own, which any image can run.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, Self

import structlog
from google.protobuf.message import Message
from grpc import aio

from controlplane.cluster.kubernetes.builds.builder import Builder, LeftError
from controlplane.cluster.protocol.builds import BuildNetwork
from controlplane.cluster.sidecar import SERVICE, channel
from controlplane.errors import Problem
from controlplane.errors.rpc import from_rpc
from controlplane.wire import agent_pb2

# As the sidecar tells its commands (``sidecar/src/spawner/proxies.rs``), and where the program listens for it.
RELAY: Final = ("127.0.0.1", 3128)
FORWARDED: Final = ("127.0.0.1", 3129)
PROGRAM: Final = "/.rollbox-build/forward"
WITHOUT_RELAY: Final = "localhost,127.0.0.1,::1"
# Of one build at once; what its steps connect to beyond that waits for its turn.
MOST_CONNECTIONS: Final = 64
PIECE_BYTES: Final = 256 << 10
LISTENS_WITHIN_MS: Final = 30_000
CALL_S: Final = 60.0

Call = aio.StreamStreamCall[Any, Any]


def variables() -> dict[str, str]:
    """Arguments of a build that every RUN has as variables, and no image: by them programs find the relay; pure."""
    proxies = dict.fromkeys(("http_proxy", "https_proxy"), f"http://{RELAY[0]}:{RELAY[1]}")
    told = {**proxies, "no_proxy": WITHOUT_RELAY}
    return {**told, **{name.upper(): value for name, value in told.items()}}


class Outside:
    """The way out of one build.

    Args:
        channel: to the sidecar.
        network: of the sandbox.
    """

    def __init__(self, channel: aio.Channel, network: BuildNetwork) -> None:
        self._channel = channel
        self._metadata = (("authorization", f"Bearer {network.token}"),)
        self._network = network
        self._log = structlog.get_logger("builds")

    @classmethod
    @asynccontextmanager
    async def open(cls, network: BuildNetwork, builder: Builder) -> AsyncIterator[Self]:
        """The way while the block runs. Cost: the builder's program (7 MB) is sent to the sandbox.

        Raises:
            Problem: the sandbox does not answer, or has ended.
            LeftError: the builder is gone.
        """
        async with channel(network.address) as opened:
            made = cls(opened, network)
            try:
                await made._begin(builder)
                carrying = asyncio.create_task(made._carry_all(builder))
            except aio.AioRpcError as error:
                raise from_rpc(error, f"the sandbox {network.sandbox_id} of the build's network") from error
            try:
                yield made
            finally:
                carrying.cancel()
                with suppress(asyncio.CancelledError):
                    await carrying

    async def _begin(self, builder: Builder) -> None:
        """Has the program run in the sandbox."""
        write = self._channel.stream_unary(
            f"/{SERVICE}/WriteFile",
            request_serializer=agent_pb2.WriteFileRequest.SerializeToString,
            response_deserializer=agent_pb2.FileInfo.FromString,
        )
        # Read before: what fails in the middle of a call's messages ends that as if it were cancelled.
        program = await builder.program()
        await write(_written(program), metadata=self._metadata, timeout=CALL_S)
        argv = [PROGRAM, "forward", _place(FORWARDED), _place(RELAY)]
        run = agent_pb2.ExecRequest(exec_id="forward", argv=argv, cwd="/", user="0")
        await self._asked("Start", run, agent_pb2.Started)
        wait = agent_pb2.WaitPortRequest(port=FORWARDED[1], timeout_ms=LISTENS_WITHIN_MS)
        if not (await self._asked("WaitPort", wait, agent_pb2.PortState)).listening:
            detail = f"no image was built: the program for its network does not run in {self._network.sandbox_id}"
            raise Problem("internal", detail)

    async def _asked(self, method: str, request: Message, answer: type[Message]) -> Any:  # noqa: ANN401 - a message
        call = self._channel.unary_unary(
            f"/{SERVICE}/{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=answer.FromString,
        )
        return await call(request, metadata=self._metadata, timeout=CALL_S)

    async def _carry_all(self, builder: Builder) -> None:
        """Takes connections of steps until the builder is gone, of which the build itself tells."""
        free = asyncio.Semaphore(MOST_CONNECTIONS)
        async with asyncio.TaskGroup() as group:
            while True:
                await free.acquire()
                try:
                    reader, writer = await builder.connection()
                except LeftError:
                    return
                group.create_task(self._carried(reader, writer)).add_done_callback(lambda _: free.release())

    async def _carried(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carries one connection; a failure ends it, as the step sees."""
        connect: Callable[..., Call] = self._channel.stream_stream(
            f"/{SERVICE}/Connect",
            request_serializer=agent_pb2.PortFrame.SerializeToString,
            response_deserializer=agent_pb2.PortFrame.FromString,
        )
        call = connect(metadata=self._metadata)
        try:
            await call.write(agent_pb2.PortFrame(port=FORWARDED[1]))
            async with asyncio.TaskGroup() as both:
                both.create_task(_up(reader, call))
                both.create_task(_down(call, writer))
        except* (aio.AioRpcError, OSError, asyncio.InvalidStateError) as failed:
            self._log.warning("a connection of a build broke", sandbox=self._network.sandbox_id, detail=repr(failed))
        finally:
            call.cancel()
            writer.close()


async def _written(program: bytes) -> AsyncIterator[agent_pb2.WriteFileRequest]:
    yield agent_pb2.WriteFileRequest(path=PROGRAM.encode(), mode=0o755, user="0", parents=True)
    for begin in range(0, len(program), PIECE_BYTES):
        yield agent_pb2.WriteFileRequest(data=program[begin : begin + PIECE_BYTES])
    yield agent_pb2.WriteFileRequest(eof=True)


async def _up(reader: asyncio.StreamReader, call: Call) -> None:
    while data := await reader.read(PIECE_BYTES):
        await call.write(agent_pb2.PortFrame(data=data))
    await call.write(agent_pb2.PortFrame(eof=True))


async def _down(call: Call, writer: asyncio.StreamWriter) -> None:
    async for frame in call:
        if frame.data:
            writer.write(frame.data)
            await writer.drain()
        if frame.eof:
            break
    writer.write_eof()


def _place(at: tuple[str, int]) -> str:
    return f"{at[0]}:{at[1]}"
