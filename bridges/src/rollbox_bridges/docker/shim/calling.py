"""Calls of the Engine API over a Unix socket, and connections that a call takes over."""

from __future__ import annotations

import http.client
import json
import os
import socket
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode

from rollbox_bridges.docker.settings import socket_of

_VERSION: Final = "/v1.44"
_MOST_HEAD_BYTES: Final = 2**16
_UPGRADE: Final = "Connection: Upgrade\r\nUpgrade: tcp\r\n"


class DaemonError(Exception):
    """The engine has refused a call, or is not there.

    Attributes:
        status: of HTTP; 0: it is not there.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class _Unix(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost")
        self._path = path

    def connect(self) -> None:
        self.sock = connected(self._path)


class Daemon:
    """The engine of this machine.

    Args:
        path: of its socket; "": that of DOCKER_HOST, or the default one.

    Raises:
        DaemonError: DOCKER_HOST is not the address of a Unix socket.
    """

    def __init__(self, path: str = "") -> None:
        try:
            self._path = path or str(socket_of(os.environ))
        except ValueError as error:
            raise DaemonError(0, str(error)) from error

    def call(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        body: Any = None,  # noqa: ANN401 - JSON
    ) -> Any:  # noqa: ANN401 - JSON
        """Call, and read the answer as JSON; None where it has none.

        Raises:
            DaemonError: it was refused.
        """
        data = self.open(method, path, query, None if body is None else json.dumps(body).encode()).read()
        return json.loads(data) if data.strip() else None

    def open(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        body: bytes | Iterable[bytes] | None = None,
    ) -> http.client.HTTPResponse:
        """Call, and return the answer with its body unread.

        Raises:
            DaemonError: it was refused.
        """
        connection = _Unix(self._path)
        headers = {"Content-Type": "application/json" if isinstance(body, bytes) else "application/x-tar"}
        connection.request(method, _target(path, query), body, headers if body is not None else {})
        response = connection.getresponse()
        if response.status >= http.client.BAD_REQUEST:
            raise _refused(response.status, response.read())
        return response

    def take_over(
        self, path: str, query: Mapping[str, Any] | None = None, body: object = None
    ) -> tuple[socket.socket, bytes]:
        """Call, and return the connection, with what came on it beside the head.

        Raises:
            DaemonError: it was refused.
        """
        taken, data = connected(self._path), b"" if body is None else json.dumps(body).encode()
        head = f"POST {_target(path, query)} HTTP/1.1\r\nHost: localhost\r\n{_UPGRADE}"
        taken.sendall(f"{head}Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
        came = b""
        while b"\r\n\r\n" not in came:
            part = taken.recv(4096)
            if not part or len(came) > _MOST_HEAD_BYTES:
                raise DaemonError(0, "the engine has closed the connection")
            came += part
        told, _, rest = came.partition(b"\r\n\r\n")
        status = int(told.split(b" ", 2)[1])
        if status != http.client.SWITCHING_PROTOCOLS:
            raise _refused(status, rest + _to_end(taken, told))
        return taken, rest


def connected(path: str) -> socket.socket:
    """Connect to a socket.

    Raises:
        DaemonError: no engine is there.
    """
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.connect(path)
    except OSError as error:
        made.close()
        raise DaemonError(
            0,
            f"Cannot connect to the Docker daemon at unix://{path}: {error.strerror}. Is `rollbox bridge docker` "
            "running, and DOCKER_HOST what it has printed?",
        ) from error
    return made


def name(text: str) -> str:
    """A name as a part of a path; a slash in it stays one."""
    return quote(text, safe="/:@")


def _target(path: str, query: Mapping[str, Any] | None) -> str:
    said = {key: value for key, value in (query or {}).items() if value is not None}
    return f"{_VERSION}{path}" + (f"?{urlencode(said, doseq=True)}" if said else "")


def _to_end(taken: socket.socket, head: bytes) -> bytes:
    # An error is short: what its head announces, or what comes.
    length = next((line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), b"")
    left, data = int(length.partition(b":")[2] or 0), b""
    while len(data) < left and (part := taken.recv(left - len(data))):
        data += part
    return data


def _refused(status: int, data: bytes) -> DaemonError:
    try:
        message = json.loads(data)["message"]
    except (ValueError, KeyError, TypeError):
        message = data.decode("utf-8", "replace").strip() or http.client.responses.get(status, "")
    return DaemonError(status, f"Error response from daemon: {message}")
