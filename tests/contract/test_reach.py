"""Ways out of a sandbox, tried on this machine's loopback, by the program that runs in the pod."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Timer

import pytest

from controlplane.reach import attempts, ways
from controlplane.reach.attempts import Seen, try_all, try_one
from controlplane.reach.listening import listening
from controlplane.reach.ways import Way
from tests.support.silent_port import silent_port

HERE = "127.0.0.1"


@contextmanager
def mute() -> Iterator[int]:
    """A port that answers nobody, as one behind a policy: its queue is full."""
    with socket.create_server((HERE, 0), backlog=0) as server, socket.create_connection(server.getsockname()):
        yield int(server.getsockname()[1])


@contextmanager
def name_server(*, answers: bool) -> Iterator[int]:
    """One that answers whatever it is asked, or is never heard of."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind((HERE, 0))
        if answers:
            answer = Timer(0, lambda: server.sendto(b"no", server.recvfrom(512)[1]))
            answer.start()
        yield int(server.getsockname()[1])
        if answers:
            answer.join()


def test_what_answers_is_open_and_what_refuses_is_not() -> None:
    with listening([0], HERE) as (there,), silent_port() as nobody:
        seen = try_all([Way("there", HERE, there), Way("nobody", HERE, nobody)])
    assert seen == {"there": Seen("open"), "nobody": Seen("refused")}


def test_what_is_silent_or_has_no_way_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    # However long it waits, nothing comes.
    monkeypatch.setattr(attempts, "LIMIT_S", 0.3)
    with mute() as port:
        assert try_one(Way("mute", HERE, port)) == Seen("closed")
    assert try_one(Way("no way", "fe80::1", 80)) == Seen("closed")


def test_a_name_server_is_open_when_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    with name_server(answers=True) as port:
        assert try_one(Way("dns", HERE, port, "dns")) == Seen("open")
    monkeypatch.setattr(attempts, "LIMIT_S", 0.3)
    with name_server(answers=False) as port:
        assert try_one(Way("dns", HERE, port, "dns")) == Seen("closed")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind((HERE, 0))
        port = int(taken.getsockname()[1])
    assert try_one(Way("dns", HERE, port, "dns")) == Seen("refused")


def test_retries_wait_for_what_comes_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "PAUSE_S", 0.01)
    way = Way("ready", HERE, 0, must_work=True, retry_for_s=60)
    with socket.socket() as server:
        server.bind((HERE, 0))
        listens = Timer(0.2, server.listen)
        listens.start()
        seen = try_one(replace(way, port=int(server.getsockname()[1])))
        listens.join()
    assert seen.ending == "open"
    assert seen.after_s > 0


def test_what_must_not_work_is_tried_until_it_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    endings = iter(["open", "open", "closed"])
    monkeypatch.setattr(attempts, "_once", lambda _: next(endings))
    monkeypatch.setattr(attempts, "PAUSE_S", 0.06)
    seen = try_one(Way("late policy", HERE, 1, retry_for_s=60))
    assert seen.ending == "closed"
    assert seen.after_s > 0
    monkeypatch.setattr(attempts, "_once", lambda _: "open")
    assert try_one(Way("no policy", HERE, 1, retry_for_s=0.1)) == Seen("open")


def test_the_program_writes_what_it_saw_where_kubernetes_reads_it(tmp_path: Path) -> None:
    log = tmp_path / "termination-log"
    with listening([0], HERE) as (port,):
        there = Way("there", HERE, port)
        command = [sys.executable, "-m", "controlplane.reach", ways.dumped([there]), str(log)]
        subprocess.run(command, check=True, timeout=60)
    report = json.loads(log.read_text())
    assert attempts.read_report(report["seen"]) == {"there": Seen("open")}
    assert report["kernel"] == Path("/proc/version").read_text().strip()


def test_the_program_needs_nothing_but_the_standard_library() -> None:
    # -S leaves out what is installed: it has to start in a moment, in a sandbox of little memory.
    command = [sys.executable, "-S", "-m", "controlplane.reach", "[]"]
    done = subprocess.run(command, check=True, capture_output=True, timeout=60, cwd=Path(__file__).parents[2])
    assert json.loads(done.stdout)["seen"] == {}


def test_ports_are_served_until_the_end() -> None:
    with listening([0, 0], "::1") as ports:
        assert try_all([Way(str(port), "::1", port) for port in ports]) == {str(port): Seen("open") for port in ports}
    assert try_one(Way("over", "::1", ports[0])).ending == "refused"
