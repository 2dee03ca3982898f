"""The operator's settings are those of the control plane, and a bad one is told before anything is opened."""

from pathlib import Path

import pytest

from controlplane.operator.__main__ import main
from controlplane.settings import EXIT_CONFIG, PREFIX


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    key = tmp_path / "key.pem"
    key.write_text("not read")
    values = {
        "BACKEND": "kubernetes",
        "NAMESPACE": "boxes",
        "INSTALLATION": "r",
        "SIDECAR_IMAGE": "s",
        "READY_URL": "http://10.0.0.1:8082",
        "API_KEYS": "a:0123456789abcdef",
        "SIGNING_KEY_FILE": str(key),
    }
    # It would go on writing to what this test captures.
    monkeypatch.setattr("controlplane.operator.__main__.configure_log", lambda: None)
    for name, value in values.items():
        monkeypatch.setenv(PREFIX + name, value)
    return monkeypatch


def test_without_a_shared_store_there_is_nothing_to_compare_with(
    environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    environment.delenv(f"{PREFIX}REDIS_URL", raising=False)
    assert main() == EXIT_CONFIG
    assert f"{PREFIX}REDIS_URL" in capsys.readouterr().err


def test_a_missing_setting_is_named(environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    environment.delenv(f"{PREFIX}NAMESPACE")
    assert main() == EXIT_CONFIG
    assert f"{PREFIX}NAMESPACE" in capsys.readouterr().err
