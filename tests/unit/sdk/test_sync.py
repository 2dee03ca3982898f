"""The blocking API, `rollbox.sync`."""

import asyncio
import subprocess
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from rollbox import Sandbox, sync
from rollbox.errors import Unsupported
from rollbox.sync.loop_thread import on_background_loop, run
from tests.support.eventually import LIMIT_S
from tests.support.fake_processes import Script
from tests.support.gateway_fake import FakeGateway


def test_many_threads_share_one_loop(apart: FakeGateway) -> None:
    with sync.Sandbox.create("python") as sandbox, ThreadPoolExecutor(16) as threads:
        results = list(threads.map(lambda _: sandbox.exec("true").ok, range(64)))
        assert all(results)
        assert sum(thread.name == "rollbox-sync" for thread in threading.enumerate()) == 1


def test_ctrl_c_kills_the_command(apart: FakeGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    with sync.Sandbox.create("python") as sandbox:
        real = Future.result

        def interrupted(self: Future[object], timeout: float | None = None) -> object:
            assert apart.held.wait(LIMIT_S)
            monkeypatch.setattr(Future, "result", real)
            raise KeyboardInterrupt

        monkeypatch.setattr(Future, "result", interrupted)
        with pytest.raises(KeyboardInterrupt):
            sandbox.exec("hold", exec_id="e1")
        assert apart.cancelled["e1"].is_set()


def test_what_is_made_on_its_loop_outlives_the_loops_that_await_it(apart: FakeGateway) -> None:
    sandbox = asyncio.run(on_background_loop(Sandbox.create("python")))
    assert asyncio.run(on_background_loop(sandbox.exec("true"))).ok
    asyncio.run(on_background_loop(sandbox.delete()))


def test_a_cancellation_reaches_its_loop(apart: FakeGateway) -> None:
    async def cancelled() -> None:
        sandbox = await on_background_loop(Sandbox.create("python"))
        running = asyncio.create_task(on_background_loop(sandbox.exec("hold", exec_id="e1")))
        await asyncio.to_thread(apart.held.wait, LIMIT_S)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert apart.cancelled["e1"].is_set()

    asyncio.run(cancelled())


def test_a_program_that_ends_while_it_creates_leaves_nothing(apart: FakeGateway) -> None:
    tasks: list[asyncio.Task[Sandbox]] = []

    async def ends() -> None:
        for _ in range(32):
            tasks.append(asyncio.create_task(on_background_loop(Sandbox.create("python"), lambda made: made.delete())))
        # Then some of the others have begun, and some are made.
        await asyncio.wait(tasks[:1])

    asyncio.run(ends())
    kept = {task.result().id for task in tasks if not task.cancelled()}
    assert {record.id for record in sync.Sandbox.list()} == kept


def test_it_starts_again_after_it_was_closed(apart: FakeGateway) -> None:
    assert sync.Sandbox.list() == []
    sync.close()
    sync.close()
    assert sync.Sandbox.list() == []


def test_an_iteration_goes_on_after_ctrl_c_and_after_a_limit(
    apart: FakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: Future[object], timeout: float | None = None) -> object:
        raise KeyboardInterrupt

    with sync.Sandbox.create("python") as sandbox, sandbox.spawn(["cat"]) as process:
        lines = process.stdout.lines()
        process.stdin.write("one\n")
        assert next(lines) == "one"
        with monkeypatch.context() as patch:
            patch.setattr(Future, "result", interrupted)
            with pytest.raises(KeyboardInterrupt):
                next(lines)
        process.stdin.write("two\n")
        assert next(lines) == "two"
        with monkeypatch.context() as patch:
            patch.setattr("rollbox.process.streams.milliseconds", lambda name, value: 0)
            with pytest.raises(TimeoutError):
                lines.next(timeout=60)
        process.stdin.write("three\n")
        assert lines.next(timeout=60) == "three"
        process.stdin.write_eof()
        assert [*lines] == []


def test_images_are_waited_for_or_told_step_by_step(apart: FakeGateway) -> None:
    with sync.Client() as client:
        assert client.prefetch(["a:1"]).here == {"a:1": ["n1", "n2"]}
        pulling = sync.Prefetch(client, "a:1", nodes=1)
        with iter(pulling) as told:
            assert (next(told).node, [one.state for one in told]) == ("n1", ["here", "here"])
        assert pulling.report.here == {"a:1": ["n1", "n2"]}
        assert client.convert("a:1").state == "offered"
        assert [one.state for one in sync.Conversion(client, "a:1", first=["/bin/sh"])][-1] == "offered"
        apart.images.missing.add("large:1")
        with pytest.raises(Unsupported):
            client.convert("large:1")


# What a program leaves behind, and what it prints.
AT_EXIT = {
    "an iteration over lines": (
        "process = sandbox.spawn('x'); left = process.stdout.lines(); print(next(left))",
        "one",
    ),
    "an iteration over changes": ("left = sandbox.files.watch('/'); print(next(left).change)", "watching"),
    "an object that deletes": (
        """
class Deletes:
    def __del__(self):
        sandbox.delete()
left = Deletes()
left.itself = left
print('made')
""",
        "made",
    ),
    "a function of atexit": ("import atexit; atexit.register(lambda: print(sandbox.exec('true').ok))", "True"),
    "a thread in a call": (
        """
import threading
threading.Thread(target=lambda: sandbox.exec('hold'), daemon=True).start()
print(sandbox.exec('true').ok)
""",
        "True",
    ),
    "a batch": (
        """
left = sync.Batch(range(9), lambda n: sandbox.exec('hold') if n else n, in_flight=2)
left.__enter__()
print(next(left).value)
""",
        "0",
    ),
    "a terminated process": (
        """
import os, signal
signal.signal(signal.SIGTERM, lambda *_: exit(print(sandbox.exec('true').ok)))
os.kill(os.getpid(), signal.SIGTERM)
""",
        "True",
    ),
    "a forked child": (
        """
import os, sys
child = os.fork()
if child:
    os.waitpid(child, 0)
else:
    try:
        sandbox.exec('true')
    except sync.SandboxError as error:
        print(error.code, 'Sandbox.connect(id)' in error.hint)
    sandbox = sync.Sandbox.connect(sandbox.id)
print(sandbox.exec('true').ok, flush=True)
""",
        "invalid_argument True\nTrue\nTrue",
    ),
    "processes of a pool": (
        """
import multiprocessing
def called(number):
    return sync.Sandbox.connect(sandbox.id).exec('true').ok
with multiprocessing.get_context('fork').Pool(2) as pool:
    print(pool.map(called, range(2)))
""",
        "[True, True]",
    ),
    "a loop that runs, as in a notebook": (
        """
import asyncio
async def cell():
    return sandbox.exec('true').ok
print(asyncio.run(cell()))
""",
        "True",
    ),
}


@pytest.mark.parametrize("what", AT_EXIT)
def test_the_end_of_a_program_does_not_wait(apart: FakeGateway, what: str) -> None:
    apart.processes.scripts["x"] = Script(b"one\ntwo\n", hold=True)
    lines, printed = AT_EXIT[what]
    code = f"from rollbox import sync\nsandbox = sync.Sandbox.create('python')\n{lines}"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert (ran.returncode, ran.stdout.strip()) == (0, printed), ran.stderr
    # What cannot be done any more is said, with the way out, where Python lets an object say anything.
    assert ("the interpreter ends" in ran.stderr) == (what == "an object that deletes")
    assert "never awaited" not in ran.stderr


@pytest.mark.parametrize("begun", [False, True])
def test_ctrl_c_before_this_thread_knows_of_the_call_cancels_it(monkeypatch: pytest.MonkeyPatch, begun: bool) -> None:
    cancelled, running = threading.Event(), threading.Event()

    async def call() -> None:
        running.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    hand_over = asyncio.run_coroutine_threadsafe

    def interrupted(*given: Any) -> Any:
        hand_over(*given)
        if begun:
            running.wait(LIMIT_S)
        raise KeyboardInterrupt

    monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(call())
    assert cancelled.is_set() or not running.is_set()
    assert cancelled.is_set() or not begun
