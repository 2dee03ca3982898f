"""`rollbox port-forward`: as a process of its own, against a gateway on this machine."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rollbox import sync
from tests.support.eventually import LIMIT_S
from tests.support.gateway_fake import FakeGateway
from tests.support.silent_port import silent_port


@pytest.fixture
def sandbox_id(apart: FakeGateway) -> str:
    return sync.Sandbox.create("python:3.12-slim").detach()


@contextmanager
def echo_server() -> Iterator[int]:
    """Run a server that sends everything back once the client has closed its side; yields its port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    peer, _ = listening.accept()
                except OSError:
                    return
                with peer, peer.makefile("rwb") as stream:
                    stream.write(stream.read())

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join(LIMIT_S)


@contextmanager
def forwarding(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Run the command; yields its process and the port that it listens on."""
    command = [sys.executable, "-m", "rollbox", "port-forward", *arguments, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(6)]
            yield process, json.loads("".join(lines))["port"]
        finally:
            process.kill()


def asked(port: int, data: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S) as client:
        client.sendall(data)
        # The peer may have reset the connection already.
        with contextlib.suppress(OSError):
            client.shutdown(socket.SHUT_WR)
        with client.makefile("rb") as stream:
            return stream.read()


def test_connections_pass_with_their_half_closes_until_it_is_told_to_end(sandbox_id: str) -> None:
    with echo_server() as port, forwarding(sandbox_id, f"0:{port}") as (process, local):
        for size in (0, 5, 2**20):
            data = bytes(size)
            assert asked(local, data) == data
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT_S) == 0


def test_a_server_that_is_not_there_ends_its_connection_and_no_other(sandbox_id: str) -> None:
    with silent_port() as port, forwarding(sandbox_id, f"0:{port}") as (process, local):
        for _ in range(2):
            # The connection is reset or closed without data, depending on timing.
            with contextlib.suppress(ConnectionError):
                assert asked(local, b"x") == b""
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=LIMIT_S)
        assert said.count("a connection ended") == 2
        assert process.returncode == 0


def test_datagrams_come_back_to_who_sent_them(sandbox_id: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(LIMIT_S)
        with forwarding(sandbox_id, f"0:{server.getsockname()[1]}", "--udp") as (process, local):
            clients = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
            for number, client in enumerate(clients):
                client.settimeout(LIMIT_S)
                client.sendto(b"%d" % number, ("127.0.0.1", local))
                data, peer = server.recvfrom(100)
                server.sendto(data * 2, peer)
            for number, client in enumerate(clients):
                assert client.recv(100) == b"%d%d" % (number, number)
                client.close()
            process.send_signal(signal.SIGINT)
            assert process.wait(LIMIT_S) == 0


@pytest.mark.parametrize("wanted", ["", "x", "80:", ":80", "0", "65536", "1:2:3", "70000:80", "-1:80"])
def test_what_is_no_port_is_refused(sandbox_id: str, wanted: str) -> None:
    command = [sys.executable, "-m", "rollbox", "port-forward", "--", sandbox_id, wanted]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "error: " in done.stderr
