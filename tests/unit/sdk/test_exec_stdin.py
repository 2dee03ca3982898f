"""Streamed input of an exec: written while the command runs, never twice, with a bounded buffer."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

import pytest

from rollbox import Client, Sandbox
from rollbox.errors import InvalidArgument, OomKilled, StreamInterrupted
from rollbox.process import streamed_stdin
from rollbox.request import WHOLE_STDIN_BYTES
from tests.support.eventually import eventually
from tests.support.fake_processes import FakeExec, Script
from tests.support.gateway_fake import FakeGateway, Fault

LARGE = os.urandom(3 * 2**20)


@pytest.fixture
async def sandbox(client: Client, fake: FakeGateway) -> Sandbox:
    fake.processes.scripts["x"] = Script(b"out", b"err", 7, hold=True)
    return await client.create("python", lease=None)


async def test_a_small_one_goes_with_the_request(sandbox: Sandbox, fake: FakeGateway) -> None:
    await sandbox.exec("cat", stdin=b"x" * WHOLE_STDIN_BYTES)
    assert (fake.count("POST", "/execs"), fake.count("GET", "/attach")) == (0, 0)


async def test_lost_answers_and_lost_connections_run_nothing_twice(sandbox: Sandbox, fake: FakeGateway) -> None:
    fake.fail("spawn", Fault(after=True), Fault("draining"))
    fake.fail("exec", Fault(), Fault("upstream_timeout"))
    fake.fail("attach", Fault("draining"), Fault())
    assert (await sandbox.exec("x", stdin=LARGE, exec_id="e1")).exit_code == 7
    assert [*fake.processes.execs] == ["e1"]
    assert bytes(fake.processes.execs["e1"].stdin) == LARGE


async def test_a_command_that_does_not_read_it_ends_as_it_ends(sandbox: Sandbox, fake: FakeGateway) -> None:
    fake.processes.scripts["true"] = Script()

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"y\n" * 2**15

    async def silent() -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""

    for given in (LARGE, endless(), silent()):
        assert (await sandbox.exec("true", stdin=given)).exit_code == 0
    assert fake.count("DELETE", "/execs") == 0


async def test_no_more_is_asked_for_than_is_under_way(sandbox: Sandbox, fake: FakeGateway) -> None:
    asked = 0

    async def counted() -> AsyncIterator[bytes]:
        nonlocal asked
        while True:
            asked += 1
            yield LARGE[: 2**16]

    fake.processes.silent_acks = True
    running = asyncio.create_task(sandbox.exec("x", stdin=counted(), exec_id="e1"))
    await eventually(lambda: "e1" in fake.processes.execs and len(fake.processes.execs["e1"].stdin) == 2**20)
    assert asked <= 2**20 // 2**16 + 1
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert killed(fake, "e1")


async def test_what_makes_the_input_fails_and_the_command_is_killed(sandbox: Sandbox, fake: FakeGateway) -> None:
    async def failing() -> AsyncIterator[bytes]:
        yield b"a part"
        raise ZeroDivisionError

    async def of_text() -> AsyncIterator[Any]:
        yield "text"

    with pytest.raises(ZeroDivisionError):
        await sandbox.exec("x", stdin=failing(), exec_id="e1")
    # No end of the sandbox is waited for: it would explain nothing.
    async with asyncio.timeout(10):
        with pytest.raises(InvalidArgument, match="not bytes"):
            await sandbox.exec("x", stdin=of_text(), exec_id="e2")
    assert killed(fake, "e1")
    assert killed(fake, "e2")


@pytest.mark.parametrize("wrong", [5, None, ["a"], "\ud800" * 2**21])
async def test_nonsense_is_refused_before_anything_runs(sandbox: Sandbox, fake: FakeGateway, wrong: Any) -> None:
    with pytest.raises(InvalidArgument, match="stdin"):
        await sandbox.exec("x", stdin=wrong)
    assert fake.count("POST", "/exec") == 0


async def test_the_request_has_the_last_word_on_an_end_that_the_writer_hears_of(
    sandbox: Sandbox, fake: FakeGateway
) -> None:
    fake.processes.problems.append({"code": "oom_killed", "detail": "its sandbox passed its limit"})
    running = asyncio.create_task(sandbox.exec("x", stdin=LARGE, exec_id="e1"))
    await eventually(lambda: not fake.processes.problems)
    fake.processes.execs["e1"].end(None, "oom_killed", 9)
    assert (await running).end == "oom_killed"


async def test_a_writer_that_gives_up_ends_what_waits_for_it(
    sandbox: Sandbox, fake: FakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streamed_stdin, "_VERDICT_S", 0.001)
    for code, kind in (("oom_killed", OomKilled), ("stream_interrupted", StreamInterrupted)):
        monkeypatch.setattr("rollbox.process.connection._RESUME_BUDGET_S", 0.0)
        fake.processes.problems.extend([{"code": code, "detail": "told"}] * 10)
        with pytest.raises(kind):
            await sandbox.exec("x", stdin=LARGE, exec_id=code)
        fake.processes.problems.clear()
        assert killed(fake, code)


def killed(fake: FakeGateway, exec_id: str) -> bool:
    made: FakeExec = fake.processes.execs[exec_id]
    return made.result is not None and made.result["end"] == "cancelled"
