"""What names say, asked by the program that runs in a pod of the doctor, of a name server on the loopback."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from controlplane.reach import platform, resolving

HERE = "127.0.0.1"
NAME = "sb-1.shard-0.zone"
A, AAAA, CNAME = 1, 28, 5


def record(kind: int, data: bytes) -> bytes:
    # Its name points at the question's.
    return b"\xc0\x0c" + struct.pack("!HHIH", kind, 1, 5, len(data)) + data


def answer(query: bytes, *records: bytes) -> bytes:
    return query[:2] + struct.pack("!5H", 0x8180, 1, len(records), 0, 0) + query[12:] + b"".join(records)


@contextmanager
def name_server(*known: bytes, after: int = 0) -> Iterator[tuple[str, int]]:
    """One that knows records of ``NAME`` from the query after so many."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind((HERE, 0))

        def serve() -> None:
            asked = 0
            while True:
                query, who = server.recvfrom(512)
                if not query:
                    return
                asked += 1
                kind = int.from_bytes(query[-4:-2], "big")
                told = [one for one in known if one[2:4] in {kind.to_bytes(2, "big"), b"\x00\x05"}]
                server.sendto(answer(query, *(told if asked > after else ())), who)

        serving = threading.Thread(target=serve)
        serving.start()
        try:
            yield server.getsockname()
        finally:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
                last.sendto(b"", server.getsockname())
            serving.join()


def soon() -> float:
    return time.monotonic() + 5.0


def test_addresses_of_both_kinds_are_read_and_nothing_else() -> None:
    records = (
        record(CNAME, b"\x01x\x00"),
        record(A, bytes([10, 0, 0, 1])),
        record(AAAA, socket.inet_pton(socket.AF_INET6, "fd00::1")),
    )
    with name_server(*records) as server:
        assert resolving.resolved(server, NAME, soon()) == ["10.0.0.1", "fd00::1"]


def test_a_name_that_says_nothing_yet_is_asked_again() -> None:
    with name_server(record(A, bytes([10, 0, 0, 1])), after=2) as server:
        assert resolving.resolved(server, NAME, soon()) == ["10.0.0.1"]


def test_a_name_that_is_not_there_differs_from_a_server_that_does_not_answer() -> None:
    with name_server() as server:
        assert resolving.resolved(server, NAME, time.monotonic()) == []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as mute:
        mute.bind((HERE, 0))
        assert resolving.resolved(mute.getsockname(), NAME, time.monotonic()) is None


@pytest.mark.parametrize("most", [4, 14, 40])
def test_an_answer_that_is_cut_off_is_refused(most: int) -> None:
    whole = answer(resolving.question(7, NAME, A), record(A, bytes([10, 0, 0, 1])))
    assert resolving.addresses(whole) == ["10.0.0.1"]
    with pytest.raises(ValueError, match="cut off"):
        resolving.addresses(whole[:most])


def test_this_machine_is_no_systrap() -> None:
    seen = platform.seen()
    assert seen["systrap"] is False
    assert isinstance(seen["call_ns"], int)
    assert seen["root"]


@pytest.mark.parametrize(
    ("mounts", "root"),
    [
        ("none / overlay rw 0 0\nnone /dev tmpfs rw 0 0\n", "overlay"),
        ("none / 9p rw,trans=fd 0 0\n", "9p"),
        ("rootfs / rootfs rw 0 0\noverlay / overlay rw 0 0\n", "overlay"),
        ("none /dev tmpfs rw 0 0\n", ""),
    ],
)
def test_the_root_is_the_last_mount_at_its_place(mounts: str, root: str) -> None:
    assert platform.root(mounts) == root
