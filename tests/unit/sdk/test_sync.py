"""The blocking API, `rollbox.sync`."""

import subprocess
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from rollbox import sync
from rollbox.errors import Unsupported
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


def test_it_starts_again_after_a_shutdown(apart: FakeGateway) -> None:
    assert sync.Sandbox.list() == []
    sync.shutdown()
    sync.shutdown()
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


AT_EXIT = {
    "an iteration over lines": "process = sandbox.spawn('x'); left = process.stdout.lines(); print(next(left))",
    "an iteration over changes": "left = sandbox.files.watch('/'); print(next(left).change)",
    "an object that deletes": """
class Deletes:
    def __del__(self):
        sandbox.delete()
left = Deletes()
left.itself = left
print('made')
""",
    "a function of atexit": "import atexit; atexit.register(lambda: print(sandbox.exec('true').ok))",
}


@pytest.mark.parametrize("what", AT_EXIT)
def test_the_end_of_a_program_does_not_wait(apart: FakeGateway, what: str) -> None:
    apart.processes.scripts["x"] = Script(b"one\ntwo\n", hold=True)
    code = f"from rollbox import sync\nsandbox = sync.Sandbox.create('python')\n{AT_EXIT[what]}"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    told = {"an iteration over lines": "one", "an iteration over changes": "watching", "an object that deletes": "made"}
    assert (ran.returncode, ran.stdout.strip()) == (0, told.get(what, "True"))
    # What cannot be done any more is said, with the way out, where Python lets an object say anything.
    assert ("the interpreter ends" in ran.stderr) == (what == "an object that deletes")
    assert "never awaited" not in ran.stderr
