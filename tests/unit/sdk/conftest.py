"""A fake gateway for each test, and no settings of the machine that runs it."""

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
    for name in ("ROLLBOX_URL", "ROLLBOX_API_KEY", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ROLLBOX_STATE_DIR", str(tmp_path / "state"))


@pytest.fixture(autouse=True)
def unhurried_farewells(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that is cancelled tells the server, however long a busy machine takes for that."""
    for module in ("gateway", "sync.portal"):
        monkeypatch.setattr(f"rollbox.{module}._FAREWELL_LIMIT_S", LIMIT_S)


@pytest.fixture(autouse=True)
def no_other_process(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leases are renewed by the event loop, but in tests of the process that does it (`lease_process`)."""
    if "lease_process" not in request.fixturenames:
        monkeypatch.setattr(renewer.Renewer, "hold", _without)


@pytest.fixture
def lease_process() -> Iterator[renewer.Renewer]:
    """The process that renews leases may be started; a test must have ended it."""
    made = renewer.shared()
    yield made
    assert made._process is None


def _without(*_: object) -> None:
    raise Unsupported("not in this test")


class Clock:
    """Waits that take no time and are written down; deadlines see them pass."""

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
    """Serve a gateway on this test's loop, found by the settings."""
    async with serving() as gateway:
        monkeypatch.setenv("ROLLBOX_URL", gateway.url)
        monkeypatch.setenv("ROLLBOX_API_KEY", API_KEY)
        yield gateway


@pytest.fixture
async def client(fake: FakeGateway, clock: Clock) -> AsyncIterator[Client]:
    """Make a client of the fake whose waits take no time."""
    async with Client(retries=RetryPolicy(sleep=clock.sleep)) as made:
        yield made


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGateway]:
    """Serve a gateway on a loop of its own, for code that brings its own loop."""
    with serving_apart() as gateway:
        monkeypatch.setenv("ROLLBOX_URL", gateway.url)
        monkeypatch.setenv("ROLLBOX_API_KEY", API_KEY)
        yield gateway
        sync.shutdown()
