"""Asks a name server what names say; the standard library alone.

``python3 -m controlplane.reach.resolving SERVER NAME,... FILE`` writes ``{name: [address, ...] | null}`` to the file;
null: there was no answer. A name that says nothing yet is asked again.
"""

import json
import secrets
import socket
import struct
import sys
import time
from pathlib import Path
from typing import Final

# Of all names together; a new name is served within a second.
WITHIN_S: Final = 10.0
ANSWER_S: Final = 1.0
PAUSE_S: Final = 0.25
PORT: Final = 53
HEADER: Final = struct.Struct("!6H")
RECORD: Final = struct.Struct("!HHIH")
RECURSION_DESIRED: Final = 0x0100
KINDS: Final = {1: socket.AF_INET, 28: socket.AF_INET6}
POINTER: Final = 0xC0


def main(arguments: list[str]) -> int:
    """Returns the exit status: 0 when all names were asked for, whatever the answers."""
    server, names, file = arguments
    until_s = time.monotonic() + WITHIN_S
    Path(file).write_text(json.dumps({name: resolved((server, PORT), name, until_s) for name in names.split(",")}))
    return 0


def resolved(server: tuple[str, int], name: str, until_s: float) -> list[str] | None:
    """What a name server says of a name.

    Args:
        server: its address and port.
        name: which.
        until_s: of the monotonic clock; so long it is asked again, while it says no address.

    Returns: addresses; none: there is no such name; None: it has not answered.
    """
    found: list[str] | None = None
    while True:
        for kind in KINDS:
            answer = _asked(server, name, kind)
            found = found if answer is None else [*(found or []), *answer]
        if found or time.monotonic() > until_s:
            return sorted(set(found)) if found is not None else None
        time.sleep(PAUSE_S)


def question(number: int, name: str, kind: int) -> bytes:
    """A query for the records of one kind."""
    labels = b"".join(bytes([len(one)]) + one.encode() for one in name.split("."))
    return HEADER.pack(number, RECURSION_DESIRED, 1, 0, 0, 0) + labels + struct.pack("!BHH", 0, kind, 1)


def addresses(message: bytes) -> list[str]:
    """The addresses in an answer.

    Raises:
        ValueError: it is cut off.
    """
    try:
        _, _, questions, answers, _, _ = HEADER.unpack_from(message)
        at = HEADER.size
        for _ in range(questions):
            at = _after_name(message, at) + 4
        found = list[str]()
        for _ in range(answers):
            at = _after_name(message, at)
            kind, _, _, size = RECORD.unpack_from(message, at)
            at += RECORD.size
            if kind in KINDS:
                found.append(socket.inet_ntop(KINDS[kind], message[at : at + size]))
            at += size
    except (struct.error, IndexError) as error:
        raise ValueError("an answer is cut off") from error
    return found


def _after_name(message: bytes, at: int) -> int:
    while (size := message[at]) and size < POINTER:
        at += size + 1
    return at + (2 if size >= POINTER else 1)


def _asked(server: tuple[str, int], name: str, kind: int) -> list[str] | None:
    number = secrets.randbelow(1 << 16)
    family = socket.AF_INET6 if ":" in server[0] else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as asking:
        asking.settimeout(ANSWER_S)
        try:
            asking.connect(server)
            asking.send(question(number, name, kind))
            answer = asking.recv(4096)
            return addresses(answer) if answer[:2] == number.to_bytes(2, "big") else None
        except (OSError, ValueError):
            return None


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
