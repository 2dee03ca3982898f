"""The renewal process: renews while its parent is blocked, ends with the parent, and exists only once."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from rollbox import Client
from rollbox.errors import Unsupported
from rollbox.leases import renewer
from rollbox.settings import Settings
from tests.support.eventually import LIMIT_S, eventually, eventually_true
from tests.support.gateway_fake import FakeGateway

KEY = "rbx_secret_of_the_test"
# Ten renewals a second.
OFTEN: Any = {"ttl_ms": 400, "every_s": 0.1}
TRAINER = """
import ctypes, os, signal, sys
from rollbox.errors import Unsupported
from rollbox.leases import renewer
from rollbox.settings import Settings
beside = renewer.shared()
beside.register("of-a-trainer", renewer.message_of(Settings(sys.argv[1], "k"), "of-a-trainer", 400, 0.1))
worker = os.fork() if "fork" in sys.argv else 0
if worker or "fork" not in sys.argv:
    print(beside._process.pid, worker, flush=True)
if "locked" in sys.argv:
    ctypes.PyDLL(None).sleep(600)
signal.pause()
"""


class Words:
    """A server that only records lease renewals."""

    def __init__(self) -> None:
        self.said: dict[str, list[str]] = {}
        self.status = 200
        self.changed = threading.Condition()
        words = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                with words.changed:
                    words.said.setdefault(self.path.rpartition("/")[2], []).append(self.headers["Authorization"])
                    words.changed.notify_all()
                self.send_response(words.status)
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        # A process that was killed leaves a broken connection.
        self.server.handle_error = lambda *_: None  # type: ignore[method-assign]
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def wait(self, name: str, more: int) -> None:
        """Block this thread until so many more renewals of a lease have arrived."""
        with self.changed:
            seen = len(self.said.get(name, ()))
            assert self.changed.wait_for(lambda: len(self.said.get(name, ())) >= seen + more, LIMIT_S), self.said


@pytest.fixture
def words() -> Iterator[Words]:
    made = Words()
    thread = threading.Thread(target=made.server.serve_forever, args=(0.01,))
    thread.start()
    yield made
    made.server.shutdown()
    thread.join()
    made.server.server_close()


def order(words: Words, name: str, key: str = KEY) -> dict[str, Any]:
    return renewer.message_of(Settings(words.url, key), name, **OFTEN)


def lives(pid: int) -> bool:
    try:
        return ") Z" not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


async def test_a_blocked_event_loop_loses_no_lease(words: Words, lease_process: renewer.Renewer) -> None:
    async with Client(words.url, KEY) as client:
        name = client.gateway.leases.of(400)["name"]
        await asyncio.sleep(0)
        # This blocks the event loop.
        words.wait(name, 8)
        assert lease_process._process is not None
        pid = lease_process._process.pid
    assert not lives(pid)
    with pytest.raises(ProcessLookupError):
        # It was reaped, so it is no zombie either.
        os.kill(pid, 0)


class Beside:
    """Stands in for the renewal process; the test decides whether it renews."""

    def __init__(self) -> None:
        self.speaks = True
        self.looks = 0
        self.held: dict[str, Any] = {}

    def register(self, name: str, wanted: dict[str, Any]) -> None:
        self.held[name] = wanted

    def unregister(self, name: str) -> None:
        del self.held[name]

    def renewed_at(self, _: str) -> float:
        self.looks += 1
        return time.monotonic() if self.speaks else 0.0


async def test_the_loop_is_silent_where_the_process_speaks_and_speaks_where_it_does_not(
    client: Client, fake: FakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside = Beside()
    monkeypatch.setattr(renewer, "shared", lambda: beside)
    async with await client.create("python", lease=0.01) as sandbox:
        name = (sandbox.record.lease or {})["name"]
        await eventually(lambda: name in beside.held)
        await eventually(lambda: beside.looks >= 10)
        assert fake.renewed == {}
        beside.speaks = False
        await eventually(lambda: fake.renewed.get(name, 0) >= 2)
        before, client.gateway.settings = client.gateway.settings, Settings(fake.url, "rotated")
        await eventually(lambda: beside.held[name]["api_key"] == "rotated")
        client.gateway.settings = before
    await client.aclose()
    assert beside.held == {}


def test_what_the_process_meets_is_logged_once(
    words: Words, lease_process: renewer.Renewer, caplog: pytest.LogCaptureFixture
) -> None:
    words.status = 401
    lease_process.register("a", order(words, "a"))
    words.wait("a", 3)
    eventually_true(lambda: lease_process.renewed_at("a") == 0.0 and caplog.text)
    words.status = 200
    eventually_true(lambda: lease_process.renewed_at("a"))
    lease_process.unregister("a")
    assert caplog.text.count("HTTP 401") == 1


def test_one_process_for_all_and_none_after_the_last(words: Words, lease_process: renewer.Renewer) -> None:
    lease_process.register("a", order(words, "a"))
    assert lease_process._process is not None
    pid = lease_process._process.pid
    lease_process.register("b", order(words, "b", "another"))
    words.wait("a", 1)
    words.wait("b", 1)
    assert (words.said["a"][0], words.said["b"][0]) == (f"Bearer {KEY}", "Bearer another")
    assert lease_process._process.pid == pid
    lease_process.unregister("a")
    lease_process.register("b", order(words, "b", "rotated"))
    words.wait("b", 2)
    assert words.said["b"][-1] == "Bearer rotated"
    count = len(words.said["a"])
    words.wait("b", 5)
    assert len(words.said["a"]) <= count + 1
    lease_process.unregister("b")
    assert not lives(pid)


def test_a_secret_is_in_no_argument_and_no_variable(
    words: Words, lease_process: renewer.Renewer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROLLBOX_API_KEY", KEY)
    lease_process.register("a", order(words, "a"))
    words.wait("a", 1)
    assert lease_process._process is not None
    about = Path(f"/proc/{lease_process._process.pid}")
    assert KEY.encode() not in (about / "cmdline").read_bytes() + (about / "environ").read_bytes()
    eventually_true(lambda: 0 < lease_process.renewed_at("a") <= time.monotonic())
    lease_process.unregister("a")


def test_one_that_died_is_replaced(words: Words, lease_process: renewer.Renewer) -> None:
    lease_process.register("a", order(words, "a"))
    lease_process.register("b", order(words, "b"))
    assert lease_process._process is not None
    lease_process._process.kill()
    lease_process._process.wait()
    lease_process.register("a", order(words, "a"))
    words.wait("a", 2)
    words.wait("b", 2)
    lease_process.close()


def test_one_that_takes_nothing_is_replaced(words: Words, lease_process: renewer.Renewer) -> None:
    lease_process.register("a", order(words, "a"))
    assert lease_process._process is not None
    stopped = lease_process._process.pid
    os.kill(stopped, signal.SIGSTOP)
    with pytest.raises(Unsupported, match="does not read"):
        _hold_often(lease_process, words)
    assert not lives(stopped)
    lease_process.register("a", order(words, "a"))
    words.wait("a", 1)
    lease_process.close()


def _hold_often(beside: renewer.Renewer, words: Words) -> None:
    for n in range(10_000):
        beside.register("a", order(words, "a", f"key-{n}"))


async def test_without_one_the_loop_renews_and_the_log_says_what_that_means(
    words: Words,
    lease_process: renewer.Renewer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    async with Client(words.url, KEY) as client:
        name = client.gateway.leases.of(40)["name"]
        await asyncio.to_thread(words.wait, name, 3)
    told = [record.getMessage() for record in caplog.records if "process that renews" in record.getMessage()]
    assert len(told) == 1
    assert "/no/such/python" in told[0]
    assert "longer than a lease" in told[0]


def test_frozen_programs_are_not_started_again(
    words: Words, lease_process: renewer.Renewer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    with pytest.raises(Unsupported):
        lease_process.register("a", order(words, "a"))
    lease_process.unregister("a")


@pytest.mark.parametrize("how", ["alone", "fork"])
async def test_a_dead_process_falls_silent_whoever_it_has_forked(words: Words, how: str) -> None:
    trainer = await asyncio.create_subprocess_exec(
        sys.executable, "-c", TRAINER, words.url, how, stdout=asyncio.subprocess.PIPE
    )
    assert trainer.stdout is not None
    process, worker = map(int, (await trainer.stdout.readline()).split())
    try:
        await asyncio.to_thread(words.wait, "of-a-trainer", 2)
        assert lives(process)
        trainer.kill()
        await eventually(lambda: not lives(process))
        assert not worker or lives(worker)
    finally:
        if worker:
            os.kill(worker, signal.SIGKILL)
    await trainer.communicate()


@pytest.mark.parametrize("how", ["stopped", "locked"])
async def test_one_that_does_nothing_at_all_keeps_its_leases(words: Words, how: str) -> None:
    """No thread of the program runs: it is stopped by a signal, or a call into C holds the interpreter's lock (GIL)."""
    trainer = await asyncio.create_subprocess_exec(
        sys.executable, "-c", TRAINER, words.url, how, stdout=asyncio.subprocess.PIPE
    )
    assert trainer.stdout is not None
    await trainer.stdout.readline()
    if how == "stopped":
        trainer.send_signal(signal.SIGSTOP)
    await asyncio.to_thread(words.wait, "of-a-trainer", 8)
    trainer.kill()
    await trainer.communicate()


def test_the_program_needs_nothing_but_the_standard_library() -> None:
    """Run it as the SDK does, isolated from site-packages; without a renewal it imports little."""
    program = Path(renewer.__file__).with_name("program.py")
    told = json.dumps({"name": "never-held"}).encode()
    ran = subprocess.run([sys.executable, "-I", "-S", program], input=told, capture_output=True, check=True)
    assert (ran.stdout, ran.stderr) == (b"", b"")
