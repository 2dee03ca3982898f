"""The blocking API, `rollbox.sync`."""

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from rollbox import sync
from rollbox.errors import ExecFailed, SandboxNotFound
from tests.support.eventually import LIMIT_S
from tests.support.gateway_fake import FakeGateway


def test_create_exec_delete(apart: FakeGateway) -> None:
    with sync.Sandbox.create("python", labels={"run": "r"}) as sandbox:
        assert sandbox.exec("cat", stdin="hi").stdout == "hi"
        assert sandbox.labels == {"run": "r"}
        assert sandbox.extend(5).id == sandbox.id
        assert [box.id for box in sync.Sandbox.list({"run": "r"})] == [sandbox.id]
    assert apart.sandboxes[sandbox.id]["state"] == "ended"
    assert "ended" in repr(sandbox)


def test_errors_come_through(apart: FakeGateway) -> None:
    apart.results["exit 3"] = {"exit_code": 3}
    with sync.Sandbox.create("python") as sandbox, pytest.raises(ExecFailed):
        sandbox.exec("exit 3", check=True)
    with pytest.raises(SandboxNotFound):
        sync.Sandbox.connect("nobody")


def test_an_exit_stack_holds_many(apart: FakeGateway) -> None:
    with ExitStack() as stack:
        sandboxes = [stack.enter_context(sync.Sandbox.create("python")) for _ in range(5)]
        assert all(sandbox.exec("true").ok for sandbox in sandboxes)
    assert sync.Sandbox.list() == []


def test_many_threads_share_one_loop(apart: FakeGateway) -> None:
    with sync.Sandbox.create("python") as sandbox, ThreadPoolExecutor(16) as threads:
        results = list(threads.map(lambda _: sandbox.exec("true").ok, range(64)))
        assert all(results)
        assert sum(thread.name == "rollbox-sync" for thread in threading.enumerate()) == 1


def test_a_client_of_ones_own(apart: FakeGateway) -> None:
    with sync.Client() as client:
        sandbox = client.create("python")
        sandbox.detach()
        assert client.connect(sandbox.id).id == sandbox.id
        assert client.get(sandbox.id).image == "python"
        assert client.info()["backend"] == "engine"
        assert client.url == apart.url
        assert len(client.list()) == 1
        assert client.delete(sandbox.id).deleted == [sandbox.id]
        sandbox.delete()


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
