"""Real Redis, real sockets: a machine that stands still for a moment is not a server that is away."""

import pytest


@pytest.fixture(autouse=True)
def unhurried_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Redis and the API server may take as long as a test does."""
    monkeypatch.setattr("controlplane.store.calls.CALL_TIMEOUT_S", 60.0)
    monkeypatch.setattr("controlplane.cluster.kubernetes.declared.documents.STATUS_WITHIN_S", 60.0)
