"""Calls to an agent by somebody who has Python and nothing else: shipped into a sandbox, and run there or here.

    python3 agent_probe.py < calls.json

Takes `{"address": "HOST:PORT" or "unix:PATH", "source": HOST or "", "calls": [[path, token, messages in hex], ...]}`
and prints the JSON list of how each call ended, over a connection of its own:

    "refused"  nothing listens there
    "closed"   the connection was closed without a byte of an answer
    "16"       any number: the status of gRPC
    "open"     the call was let in and goes on
    "silent"   nothing came in time

HTTP/2 in as little as a call takes: one frame of headers, none of them compressed, and one of data. Of the answer's
headers, which are compressed, the status alone is found.
"""

from __future__ import annotations

import contextlib
import json
import socket
import sys

PATIENCE_S = 30.0
# What follows the head of an answer that is whole comes at once; a stream may bring nothing more.
REST_S = 5.0

DATA, HEADERS, SETTINGS = 0, 1, 4
ACK = END_STREAM = 0x1
END_HEADERS = 0x4
STATUS_NAMES = (b"\x0bgrpc-status", b"\x88\x9a\xca\xc8\xb2\x12\x34\xda\x8f")
# The digits in Huffman's code for headers (RFC 7541, appendix B).
DIGITS = ("00000", "00001", "00010", "011001", "011010", "011011", "011100", "011101", "011110", "011111")


def frame(kind: int, flags: int, content: bytes, stream: int = 1) -> bytes:
    return len(content).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + content


def text(words: str) -> bytes:
    """As headers carry it: a length in seven bits, or in seven and more, and the bytes as they are."""
    data, most = words.encode(), 0x7F
    if len(data) < most:
        return bytes((len(data),)) + data
    size, left = bytearray((most,)), len(data) - most
    while left > most:
        size.append(left & most | most + 1)
        left >>= 7
    return bytes((*size, left)) + data


def request(path: str, token: str | None, messages: list[bytes]) -> bytes:
    """All that a caller sends: a preface, settings, the head of the call and its messages."""
    head = b"\x83\x86\x01" + text("sidecar") + b"\x04" + text(path)  # POST, http, the authority, the path
    fields = {"content-type": "application/grpc", "te": "trailers"}
    if token is not None:
        fields["authorization"] = f"Bearer {token}"
    head += b"".join(b"\x00" + text(name) + text(value) for name, value in fields.items())
    body = b"".join(b"\0" + len(one).to_bytes(4, "big") + one for one in messages)
    hello = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, b"", 0)
    return hello + frame(HEADERS, END_HEADERS, head) + frame(DATA, END_STREAM, body)


def status(block: bytes) -> str | None:
    """The status that a block of headers tells, however it is written there."""
    for code in map(str, range(17)):
        bits = "".join(DIGITS[int(digit)] for digit in code)
        bits += "1" * (-len(bits) % 8)
        short = int(bits, 2).to_bytes(len(bits) // 8, "big")
        values = (bytes((len(code),)) + code.encode(), bytes((0x80 | len(short),)) + short)
        if any(name + value in block for name in STATUS_NAMES for value in values):
            return code
    return None


def answer(connection: socket.socket) -> str:
    stream, answered, let_in = connection.makefile("rb"), False, False
    try:
        while len(head := stream.read(9)) == 9:
            answered = True
            kind, flags = head[3], head[4]
            content = stream.read(int.from_bytes(head[:3], "big"))
            if kind == SETTINGS and not flags & ACK:
                connection.sendall(frame(SETTINGS, ACK, b"", 0))
            if kind == HEADERS:
                if (told := status(content)) is not None:
                    return told
                let_in = True
                connection.settimeout(REST_S)
    except TimeoutError:
        return "open" if let_in else "silent"
    except OSError:
        pass
    return "open" if let_in else "cut" if answered else "closed"


def call(address: str, source: str, sent: bytes) -> str:
    host, _, port = address.rpartition(":")
    try:
        if host == "unix":
            connection = socket.socket(socket.AF_UNIX)
            connection.settimeout(PATIENCE_S)
            connection.connect(port)
        else:
            connection = socket.create_connection((host, int(port)), PATIENCE_S, (source, 0) if source else None)
    except ConnectionRefusedError:
        return "refused"
    except ConnectionResetError:
        return "closed"
    with connection:
        # It may be closed already, and an answer have come before that.
        with contextlib.suppress(OSError):
            connection.sendall(sent)
        return answer(connection)


def main() -> None:
    asked = json.load(sys.stdin)
    calls = [(path, token, [bytes.fromhex(one) for one in messages]) for path, token, messages in asked["calls"]]
    print(json.dumps([call(asked["address"], asked["source"], request(*one)) for one in calls]))


if __name__ == "__main__":
    main()
