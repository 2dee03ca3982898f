"""Runs in a sandbox, with nothing but Python there: an HTTP server, a TCP echo and a UDP echo, on the ports given.

They listen on loopback; a fourth argument is the HTTP server's address instead.
"""

from __future__ import annotations

import base64
import hashlib
import json
import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

NEXT = threading.Event()
GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        kind, _, argument = self.path.strip("/").partition("/")
        if kind == "socket":
            self.websocket()
        elif kind == "events":
            self.events()
        elif kind == "zeros":
            self.begin(200, "application/octet-stream", int(argument))
            for _ in range(int(argument) // 100_000):
                self.wfile.write(bytes(100_000))
        elif kind == "head":
            self.head(int(argument))
        elif self.path.startswith("/redirect?"):
            self.redirect()
        else:
            NEXT.set()
            self.tell(int(argument) if kind == "status" else 200)

    def do_POST(self) -> None:
        self.tell(200)

    def head(self, headers: int) -> None:
        self.send_response(200)
        for number in range(headers):
            self.send_header(f"X-Much-{number}", "x" * 100)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def redirect(self) -> None:
        asked = parse_qs(urlsplit(self.path).query)
        self.send_response(302)
        self.send_header("Location", asked["to"][0])
        self.send_header("Set-Cookie", asked["cookie"][0])
        self.send_header("Content-Length", "0")
        self.end_headers()

    def tell(self, status: int) -> None:
        body = self.body()
        told = {
            "method": self.command,
            "path": self.path,
            "headers": {name.lower(): value for name, value in self.headers.items()},
            "body_bytes": len(body),
            "sha256": hashlib.sha256(body).hexdigest(),
        }
        data = json.dumps(told).encode()
        self.begin(status, "application/json", len(data))
        self.wfile.write(data)

    def body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def begin(self, status: int, kind: str, length: int) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(length))
        self.send_header("X-Server", "in the sandbox")
        self.end_headers()

    def events(self) -> None:
        NEXT.clear()
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(b"data: 1\n\n")
        self.wfile.flush()
        NEXT.wait(30)
        self.wfile.write(b"data: 2\n\n")
        self.close_connection = True

    def websocket(self) -> None:
        accept = base64.b64encode(hashlib.sha1((self.headers["Sec-WebSocket-Key"] + GUID).encode()).digest())
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", accept.decode())
        self.end_headers()
        # speed: each turn waits for a frame
        while self.echo():
            pass
        self.close_connection = True

    def echo(self) -> bool:
        """One frame back as it came, without its mask; False when it was a close."""
        head = self.rfile.read(2)
        if len(head) < 2:
            return False
        length = head[1] & 127
        extended = self.rfile.read({126: 2, 127: 8}.get(length, 0))
        length = int.from_bytes(extended, "big") if extended else length
        mask, data = self.rfile.read(4), self.rfile.read(length)
        data = bytes(byte ^ mask[at % 4] for at, byte in enumerate(data))
        self.wfile.write(bytes([head[0], head[1] & 127]) + extended + data)
        self.wfile.flush()
        return head[0] & 15 != 8

    def log_message(self, *_: object) -> None:
        pass


def tcp(port: int) -> None:
    with socket.create_server(("127.0.0.1", port)) as listening:
        while True:
            threading.Thread(target=echo_all, args=(listening.accept()[0],), daemon=True).start()


def echo_all(connection: socket.socket) -> None:
    with connection:
        while data := connection.recv(65_536):
            connection.sendall(data)
        connection.sendall(b"bye")


def udp(bound: socket.socket) -> None:
    while True:
        data, sender = bound.recvfrom(65_536)
        bound.sendto(b"echo " + data[:1_000], sender)


def main(http_port: int, tcp_port: int, udp_port: int, http_host: str = "127.0.0.1") -> None:
    # Before the others listen: nobody can wait for a port of datagrams.
    bound = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    bound.bind(("127.0.0.1", udp_port))
    threading.Thread(target=udp, args=(bound,), daemon=True).start()
    threading.Thread(target=tcp, args=(tcp_port,), daemon=True).start()
    ThreadingHTTPServer((http_host, http_port), Handler).serve_forever()


if __name__ == "__main__":
    first, second, third = map(int, sys.argv[1:4])
    main(first, second, third, *sys.argv[4:])
