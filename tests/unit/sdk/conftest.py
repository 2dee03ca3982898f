"""Fixtures: a fake gateway for each test, and none of the settings of the machine that runs it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from rollbox import Client, RetryPolicy, sync
from rollbox.errors import Unsupported
from rollbox.leases import renewer
from tests.support.eventually import LIMIT_S
from tests.support.gateway_fake import API_KEY, FakeGateway, serving, serving_apart


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("ROLLBOX_URL", "ROLLBOX_API_KEY", "ROLLBOX_CONTEXT", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("rollbox.settings.context_first", False)
    monkeypatch.setenv("ROLLBOX_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.setenv("ROLLBOX_STATE_DIR", str(tmp_path / "state"))


@pytest.fixture(autouse=True)
def unhurried_cleanup(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cleanup after a cancelled call has time enough, however slow a busy machine is."""
    for module in ("gateway", "sync.loop_thread"):
        monkeypatch.setattr(f"rollbox.{module}._CLEANUP_LIMIT_S", LIMIT_S)


@pytest.fixture(autouse=True)
def no_other_process(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop renews leases, except in tests of the renewal process (`lease_process`)."""
    if "lease_process" not in request.fixturenames:
        monkeypatch.setattr(renewer.Renewer, "register", _without)


@pytest.fixture
def lease_process() -> Iterator[renewer.Renewer]:
    """Allow the renewal process; a test must have ended it."""
    made = renewer.shared()
    yield made
    assert made._process is None


def _without(*_: object) -> None:
    raise Unsupported("not in this test")


class Clock:
    """A virtual clock: waits take no time and are recorded, and deadlines see the time pass."""

    def __init__(self) -> None:
        self.waits: list[float] = []
        self.now_s = 0.0

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now_s += seconds

    def now(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr("rollbox.deadline._now", made.now)
    return made


@pytest.fixture
async def fake(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeGateway]:
    """Serve a fake gateway on this test's event loop; the settings point to it."""
    async with serving() as gateway:
        monkeypatch.setenv("ROLLBOX_URL", gateway.url)
        monkeypatch.setenv("ROLLBOX_API_KEY", API_KEY)
        yield gateway


@pytest.fixture
async def client(fake: FakeGateway, clock: Clock) -> AsyncIterator[Client]:
    """Make a client of the fake gateway whose waits take no time."""
    async with Client(retries=RetryPolicy(sleep=clock.sleep)) as made:
        yield made


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGateway]:
    """Serve a fake gateway on an event loop of its own, for code that brings its own loop."""
    with serving_apart() as gateway:
        monkeypatch.setenv("ROLLBOX_URL", gateway.url)
        monkeypatch.setenv("ROLLBOX_API_KEY", API_KEY)
        yield gateway
        sync.close()
