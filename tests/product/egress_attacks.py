"""Runs in a sandbox whose policy allows ports 8000 and 443 of `index.test`: tries to get at what it must not reach.

Its arguments are the secret that a success would show, and the addresses of `tests.support.outside`. It prints a JSON
object of two: by `ways`, whether what is allowed was reached by the means that the attacks use (an attack that could
not have succeeded shows nothing); by `attacks`, what was tried, and whether the secret came back.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import ssl
import struct
import sys
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import quote, urlsplit

SECRET, ALLOWED, REFUSED, HOST = sys.argv[1].encode(), *sys.argv[2:5]
PROXY = urlsplit(os.environ["HTTP_PROXY"])


def said(sock: socket.socket, sent: Sequence[bytes]) -> bytes:
    sock.settimeout(5)
    got = b""
    try:
        for piece in sent:
            sock.sendall(piece)
            if len(sent) > 1:
                got += sock.recv(4096)
        while piece := sock.recv(65536):
            got += piece
    except OSError:
        pass
    return got


def proxied(*sent: bytes, host: str = "127.0.0.1") -> bytes:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as sock:
        sock.connect((host, PROXY.port))
        return said(sock, sent)


def absolute(url: str, host: str | None = None, more: str = "") -> bytes:
    host = host or urlsplit(url).netloc
    return proxied(f"GET {url} HTTP/1.1\r\nHost: {host}\r\n{more}Connection: close\r\n\r\n".encode())


def tunnel(target: str, inner: bytes = b"GET / HTTP/1.0\r\n\r\n", more: str = "") -> bytes:
    return proxied(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{more}\r\n".encode(), inner)


def socks(kind: bytes, address: bytes, port: int, inner: bytes = b"GET / HTTP/1.0\r\n\r\n") -> bytes:
    return proxied(b"\x05\x01\x00", b"\x05\x01\x00" + kind + address + struct.pack("!H", port), inner)


def direct(kind: socket.SocketKind, address: str, port: int, sent: bytes = b"GET / HTTP/1.0\r\n\r\n") -> bytes:
    try:
        with socket.socket(socket.AF_INET, kind) as sock:
            sock.settimeout(5)
            sock.connect((address, port))
            return said(sock, [sent])
    except OSError:
        return b""


def question(name: str) -> bytes:
    labels = b"".join(bytes([len(one)]) + one.encode() for one in name.split("."))
    return b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00" + labels + b"\x00\x00\x01\x00\x01"


def hello(name: str | None) -> bytes:
    """What a client of TLS says first, to a server of this name."""
    context = ssl.create_default_context()
    context.check_hostname = False
    sent = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname=name).do_handshake()
    return sent.read()


def extended(first: bytes, kind: int, body: bytes) -> bytes:
    """The same ClientHello with one more extension."""
    at = 5 + 4 + 2 + 32
    at += 1 + first[at]
    at += 2 + int.from_bytes(first[at : at + 2])
    at += 1 + first[at]
    extensions = first[at + 2 :] + struct.pack("!HH", kind, len(body)) + body
    message = first[9:at] + struct.pack("!H", len(extensions)) + extensions
    return first[:3] + struct.pack("!H", len(message) + 4) + b"\x01" + len(message).to_bytes(3) + message


def greeted(name: str | None, more: tuple[int, bytes] | None = None) -> bytes:
    """Port 443 of `index.test` speaks no TLS: that it complains of what it got shows that it got it."""
    first = hello(name)
    sent = extended(first, *more) if more else first
    return SECRET if b" 400 " in tunnel("index.test:443", sent) else b""


def asked_of_socks(command: int) -> bytes:
    """Whether the proxy does for SOCKS5 what is no connection."""
    answer = proxied(b"\x05\x01\x00", b"\x05" + bytes([command]) + b"\x00\x03\x0aindex.test" + struct.pack("!H", 8000))
    return SECRET if answer[2:4] == b"\x05\x00" else b""


def taken(host: str) -> bytes:
    """Whether another program can have the proxy's port."""
    for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with contextlib.suppress(OSError), socket.socket(family) as mine:
            mine.setsockopt(socket.SOL_SOCKET, option, 1)
            mine.bind((host, PROXY.port))
            mine.listen()
            return SECRET
    return b""


def moved(to: str, status: int = 302) -> bytes:
    """What a client gets that follows where the allowed server sends it."""
    with contextlib.suppress(OSError):
        return bytes(urllib.request.urlopen(f"http://index.test:8000/moved/{status}?to={quote(to)}", timeout=10).read())
    return b""


def again(url: str) -> bytes:
    """All answers of a name whose addresses change between two questions."""
    return b"".join(absolute(url) + tunnel(urlsplit(url).netloc) for _ in range(8))


def replayed() -> bytes:
    """Whether this side can take the place of egress at the sidecar, whose greeting to it is that of HTTP/2."""
    greeting = b"PRI * HTTP/2.0"
    for host in ("127.0.0.1", "::1", socket.gethostbyname(socket.gethostname())):
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        for ticket in (b"0" * 32, b"f" * 64):
            with contextlib.suppress(OSError), socket.socket(family) as sock:
                sock.settimeout(5)
                sock.connect((host, 7070))
                if greeting in said(sock, [b"LEG " + ticket + b"\n"]):
                    return SECRET
    return SECRET if Path("/run/rollbox/agent/agent.sock").exists() else b""


def seen(name: str) -> bytes:
    """Whether a process of this name is there, to be signalled."""
    for one in Path("/proc").glob("[0-9]*/comm"):
        # It may have ended meanwhile.
        with contextlib.suppress(OSError):
            if one.read_text().strip() == name:
                return SECRET
    return b""


number = struct.unpack("!I", socket.inet_aton(REFUSED))[0]
octal = ".".join(f"0{int(one):o}" for one in REFUSED.split("."))
spoof = b"GET http://index.test:8000/ HTTP/1.1\r\nHost: index.test:8000\r\n"
smuggled = f"GET http://{REFUSED}:8000/ HTTP/1.1\r\nHost: {REFUSED}:8000\r\n\r\n".encode()
WAYS: dict[str, Callable[[], bytes]] = {
    "absolute form": lambda: absolute("http://index.test:8000/hello"),
    "a tunnel": lambda: tunnel("index.test:8000", b"GET /hello HTTP/1.0\r\n\r\n"),
    "SOCKS5 by name": lambda: socks(b"\x03", b"\x0aindex.test", 8000, b"GET /hello HTTP/1.0\r\n\r\n"),
    "a redirect": lambda: moved("http://index.test:8000/hello"),
    "the proxy by IPv6": lambda: proxied(b"GET http://index.test:8000/hello HTTP/1.0\r\n\r\n", host="::1"),
    "TLS that names the host": lambda: b"hello from outside" if greeted("index.test") else b"",
    "TLS with an extension that nobody knows": lambda: (
        b"hello from outside" if greeted("index.test", (0xFDFD, b"")) else b""
    ),
}
ATTACKS: dict[str, Callable[[], bytes]] = {
    "an address beside the allowed one": lambda: absolute(f"http://{REFUSED}:8000/"),
    "a tunnel to it": lambda: tunnel(f"{REFUSED}:8000"),
    "its number": lambda: absolute(f"http://{number}:8000/"),
    "its number in hexadecimal": lambda: absolute(f"http://{number:#x}:8000/"),
    "its octal form": lambda: absolute(f"http://{octal}:8000/"),
    "its short form": lambda: tunnel("198.18.19715:8000"),
    "its mapped form": lambda: tunnel(f"[::ffff:{REFUSED}]:8000"),
    "its form for NAT64": lambda: tunnel(f"[64:ff9b::{number >> 16:x}:{number & 0xFFFF:x}]:8000"),
    "a name that leads to it": lambda: absolute("http://inside.test:8000/"),
    "a tunnel to such a name": lambda: tunnel("inside.test:8000"),
    "a name that leads to the loopback": lambda: tunnel("loopback.test:18777"),
    "a name that leads to the metadata service": lambda: tunnel("metadata.test:80"),
    "the metadata service": lambda: absolute("http://169.254.169.254/"),
    "the loopback of egress": lambda: tunnel("127.0.0.1:18777"),
    "the host": lambda: tunnel(f"{HOST}:18777"),
    "another port of the allowed host": lambda: absolute("http://index.test:8001/"),
    "a tunnel to that port": lambda: tunnel("index.test:8001"),
    "no TLS on its port for TLS": lambda: tunnel("index.test:443"),
    "TLS that names another host": lambda: greeted("inside.test"),
    "TLS that names none": lambda: greeted(None),
    "TLS with a hidden name": lambda: greeted("index.test", (0xFE0D, b"\x00" + bytes(40))),
    "the refused address with a final dot": lambda: tunnel(f"{REFUSED}.:8000"),
    "a name that leads to it with a final dot": lambda: tunnel("inside.test.:8000"),
    "a name with two final dots": lambda: tunnel("inside.test..:8000"),
    "a name in capitals": lambda: tunnel("INSIDE.TEST:8000"),
    "port 0": lambda: tunnel("index.test:0"),
    "a port below 0": lambda: tunnel("index.test:-57535"),
    "two ports": lambda: tunnel("index.test:8000:8001"),
    "the allowed name as a user of a tunnel": lambda: tunnel(f"index.test:8000@{REFUSED}:8000"),
    "a line's end in the target": lambda: proxied(
        f"CONNECT index.test:8000\r\nHost: {REFUSED}:8000 HTTP/1.1\r\n\r\n".encode(), b"GET / HTTP/1.0\r\n\r\n"
    ),
    "a zero byte in the name": lambda: socks(b"\x03", b"\x16index.test\x00.inside.test", 8000),
    "UDP by SOCKS5": lambda: asked_of_socks(3),
    "a port to be called back at by SOCKS5": lambda: asked_of_socks(2),
    "the proxy's port of IPv4": lambda: taken("127.0.0.1"),
    "the proxy's port of every address": lambda: taken("0.0.0.0"),
    "the proxy's port of IPv6": lambda: taken("::1"),
    "the proxy's port of every address of IPv6": lambda: taken("::"),
    "a process of the proxy to stop": lambda: seen("rollbox-relay") or seen("rollbox-sidecar"),
    "a port out of range": lambda: tunnel("index.test:73537"),
    "the allowed name as a user": lambda: absolute(f"http://index.test:8000@{REFUSED}:8000/"),
    "the allowed name as the beginning": lambda: absolute("http://index.test.inside.test:8000/"),
    "the allowed name in Host": lambda: absolute(f"http://{REFUSED}:8000/", host="index.test:8000"),
    "another name in Host": lambda: absolute("http://index.test:8000/", host="inside.test:8000"),
    "a header with another one in it": lambda: absolute(
        "http://index.test:8000/", more=f"X: a\nHost: {REFUSED}:8000\r\n"
    ),
    "a second request behind a body of two lengths": lambda: proxied(
        spoof + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled
    ),
    "a second request on the connection": lambda: proxied(spoof + b"\r\n" + smuggled),
    "a proxy in the proxy": lambda: tunnel("index.test:8000", b"CONNECT 198.18.77.3:8000 HTTP/1.1\r\n\r\n"),
    "SOCKS5 by address": lambda: socks(b"\x01", socket.inet_aton(REFUSED), 8000),
    "SOCKS5 by name": lambda: socks(b"\x03", b"\x0binside.test", 8000),
    "SOCKS5 by IPv6": lambda: socks(b"\x04", socket.inet_pton(socket.AF_INET6, f"::ffff:{REFUSED}"), 8000),
    "the proxy by IPv6": lambda: proxied(f"GET http://{REFUSED}:8000/ HTTP/1.0\r\n\r\n".encode(), host="::1"),
    "a redirect to the address beside": lambda: moved(f"http://{REFUSED}:8000/"),
    "a lasting redirect to a name that leads to it": lambda: moved("http://inside.test:8000/", 301),
    "a redirect with the method to the metadata service": lambda: moved("http://169.254.169.254/", 307),
    "a redirect to another port": lambda: moved("http://index.test:8001/", 308),
    "a redirect to the loopback of egress": lambda: moved("http://127.0.0.1:18777/"),
    "a redirect to a name that no rule has": lambda: moved("http://elsewhere.test:8000/"),
    "a name whose address changes": lambda: again("http://rebind.test:8000/"),
    "a name with allowed and refused addresses": lambda: again("http://mixed.test:8000/"),
    "a name with dozens of addresses": lambda: again("http://many.test:8000/"),
    "a link to the proxy in the place of egress": replayed,
    "TCP without the proxy": lambda: direct(socket.SOCK_STREAM, REFUSED, 8000),
    "TCP to the allowed address without the proxy": lambda: direct(socket.SOCK_STREAM, ALLOWED, 8001),
    "UDP without the proxy": lambda: direct(socket.SOCK_DGRAM, ALLOWED, 53, question("index.test")) and SECRET,
    "a question to a resolver through the local one": lambda: (
        SECRET
        if socket.inet_aton(ALLOWED) in direct(socket.SOCK_DGRAM, "127.0.0.1", 53, question("index.test"))
        else b""
    ),
}

if __name__ == "__main__":
    ways = {name: b"hello from outside" in way() for name, way in WAYS.items()}
    print(json.dumps({"ways": ways, "attacks": {name: SECRET in attack() for name, attack in ATTACKS.items()}}))
