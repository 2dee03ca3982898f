"""Fetches what a Dockerfile adds from addresses: in the network of a build's steps, so by its policy alone."""

import asyncio
import ctypes
import hashlib
import os
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import BinaryIO, Final

import aiohttp

from controlplane.cluster.dockerfiles.sources import File
from controlplane.errors import Problem

# Of all addresses of a build together, as the files of its context have.
MOST_BYTES: Final = 1 << 30
MOST_REDIRECTS: Final = 10
CONNECT_S: Final = 30.0
# Without a byte.
SILENCE_S: Final = 60.0
CHUNK_BYTES: Final = 1 << 18
_CLONE_NEWNET: Final = 0x40000000
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


@asynccontextmanager
async def session(pid: int, relay: str) -> AsyncIterator[aiohttp.ClientSession]:
    """What reaches the network as the processes of another network namespace do.

    Args:
        pid: of one of these, on this machine.
        relay: the address of the relay there, ``http://127.0.0.1:3128``.
    """

    def made(address: object) -> socket.socket:
        del address
        return _socket_of(pid)

    connector = aiohttp.TCPConnector(socket_factory=made, force_close=True)
    timeout = aiohttp.ClientTimeout(total=None, connect=CONNECT_S, sock_read=SILENCE_S)
    async with aiohttp.ClientSession(
        connector=connector, timeout=timeout, proxy=relay, auto_decompress=False, trust_env=False
    ) as made_session:
        yield made_session


async def fetch(outside: aiohttp.ClientSession, file: File, to: BinaryIO, most_bytes: int) -> int:
    """Fetches a file.

    Args:
        outside: see ``session``.
        file: what it is, with its address.
        to: where its content is written.
        most_bytes: that it may have.

    Returns:
        how many bytes it has.

    Raises:
        Problem: build_failed: the policy does not allow it, the server does not answer with it, or it has another
            checksum; payload_too_large; egress_unavailable.
    """
    kind, _, digits = file.checksum.partition(":")
    seen, length = hashlib.new(kind or "sha256", usedforsecurity=True), 0
    try:
        async with outside.get(file.address, max_redirects=MOST_REDIRECTS) as answer:
            if answer.status != HTTPStatus.OK:
                raise _refused(file, answer.status, answer.reason or "")
            async for chunk in answer.content.iter_chunked(CHUNK_BYTES):
                length += len(chunk)
                if length > most_bytes:
                    detail = f"{_where(file)} has more than the {most_bytes} bytes that a build may fetch"
                    raise Problem("payload_too_large", detail, reason="context_too_large")
                seen.update(chunk)
                await asyncio.to_thread(to.write, chunk)
    except aiohttp.ClientHttpProxyError as error:
        raise _refused(file, error.status, error.message) from error
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        raise _failed(file, f"{error}" or type(error).__name__) from error
    if digits and seen.hexdigest() != digits:
        raise _failed(file, f"it has the checksum {kind}:{seen.hexdigest()}, and not {file.checksum}")
    return length


def _socket_of(pid: int) -> socket.socket:
    """A socket of another network namespace: one stays in that in which it was made. Blocks for well below 1 ms."""
    made: list[socket.socket | OSError] = []

    def make() -> None:
        # The thread ends with this: it is never again of the namespace of this process.
        try:
            namespace = os.open(Path("/proc", str(pid), "ns", "net"), os.O_RDONLY | os.O_CLOEXEC)
            try:
                if _LIBC.setns(namespace, _CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
            finally:
                os.close(namespace)
            made.append(socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK))
        except OSError as error:
            made.append(error)

    thread = threading.Thread(target=make, name="network of a build")
    thread.start()
    thread.join()
    if isinstance(made[0], OSError):
        raise made[0]
    return made[0]


def _refused(file: File, status: int, reason: str) -> Problem:
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        return Problem("egress_unavailable", f"{_where(file)}: {reason or status}")
    return _failed(file, f"the answer is {status} {reason}".strip())


def _failed(file: File, why: str) -> Problem:
    return Problem("build_failed", f"no image was built: {_where(file)}: {why[:600]}", line=file.line)


def _where(file: File) -> str:
    return f"Dockerfile, line {file.line}, ADD of {file.address[:200]}"
