"""What runs in the sandbox: tries what it is told to, and prints how each attempt ended. The standard library alone.

Its text is given to `python3 -c`, of any version from 3.8 on, with the tries as JSON; so it imports nothing of rollbox.
"""

from __future__ import annotations

import json
import os
import socket
import ssl
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, List, Optional  # noqa: UP035 - of 3.8
from urllib.parse import urlsplit

LIMIT_S = 5.0
# Egress tries a server for ten seconds.
PROXY_LIMIT_S = 15.0
MOST_BYTES = 65536
OK = 200

Json = Dict[str, Any]  # noqa: UP006


def main(arguments: List[str]) -> None:  # noqa: UP006
    """Tries all at once."""
    tries = json.loads(arguments[0])
    with ThreadPoolExecutor(max(1, len(tries))) as threads:
        seen = {one["name"]: threads.submit(_attempt, one) for one in tries}
    sys.stdout.write(json.dumps({name: one.result() for name, one in seen.items()}))


def _attempt(one: Json) -> Json:
    began = time.monotonic()
    try:
        seen = {"direct": _direct, "name": _look_up, "proxy": _proxied, "get": _got}[one["how"]](one)
    except OSError as error:
        seen = {"error": str(error) or type(error).__name__}
    return {**seen, "seconds": round(time.monotonic() - began, 3)}


def _direct(one: Json) -> Json:
    socket.create_connection((one["host"], one["port"]), LIMIT_S).close()
    return {}


def _look_up(one: Json) -> Json:
    socket.getaddrinfo(one["host"], None)
    return {}


def _proxied(one: Json) -> Json:
    """`CONNECT` at the proxy, and TLS behind it."""
    host = f"[{one['host']}]" if ":" in one["host"] else one["host"]
    place = f"{host}:{one['port']}"
    with _proxy() as stream:
        stream.sendall(f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n\r\n".encode())
        seen = _answer(stream)
        if seen["status"] == OK and one["tls"]:
            _tls(stream, one["host"])
        return seen


def _got(one: Json) -> Json:
    """A request in absolute form."""
    with _proxy() as stream:
        stream.sendall(f"GET http://{one['host']}{one['path']} HTTP/1.1\r\nHost: {one['host']}\r\n\r\n".encode())
        return _answer(stream)


def _proxy() -> socket.socket:
    """A connection to the proxy that the environment names."""
    proxy = urlsplit(os.environ.get("HTTPS_PROXY", ""))
    if not proxy.hostname:
        raise OSError("HTTPS_PROXY is not set")
    stream = socket.create_connection((proxy.hostname, proxy.port or 0), LIMIT_S)
    stream.settimeout(PROXY_LIMIT_S)
    return stream


def _answer(stream: socket.socket) -> Json:
    """The status; of a refusal its code and its sentence."""
    read = b""
    while b"\r\n\r\n" not in read:
        read = _more(stream, read)
    head, _, body = read.partition(b"\r\n\r\n")
    status = int(head.split()[1])
    if status == OK:
        return {"status": status}
    while (problem := _whole(body)) is None:
        body = _more(stream, body)
    return {"status": status, "code": str(problem.get("code", "")), "detail": str(problem.get("detail", ""))}


def _whole(body: bytes) -> Optional[Json]:  # noqa: UP045
    """A body, once all of it has come."""
    try:
        found = json.loads(body)
    except ValueError:
        return None
    return found if isinstance(found, dict) else {}


def _more(stream: socket.socket, read: bytes) -> bytes:
    came = stream.recv(MOST_BYTES)
    if not came or len(read) > MOST_BYTES:
        raise OSError(f"the proxy gave no answer that can be read: {read[:80]!r}")
    return read + came


def _tls(stream: socket.socket, host: str) -> None:
    """Begins TLS; whose certificate it is does not matter here."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.wrap_socket(stream, server_hostname=host).close()


if __name__ == "__main__":
    main(sys.argv[1:])
