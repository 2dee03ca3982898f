"""Real Redis, real sockets: a machine that stands still for a moment is not a Redis that is away."""

import pytest


@pytest.fixture(autouse=True)
def unhurried_stores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stores wait for their Redis as long as a test does."""
    monkeypatch.setattr("controlplane.store.calls.CALL_TIMEOUT_S", 60.0)
