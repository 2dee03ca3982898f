"""The operator has the control plane's settings but for its secrets, and tells of a bad one at once."""

import pytest

from controlplane.operator.__main__ import main
from controlplane.settings import EXIT_CONFIG, PREFIX, OperatorSettings


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    values = {
        "BACKEND": "kubernetes",
        "NAMESPACE": "boxes",
        "INSTALLATION": "r",
        "SIDECAR_IMAGE": "s",
        "READY_URL": "http://10.0.0.1:8082",
    }
    for name, value in values.items():
        monkeypatch.setenv(PREFIX + name, value)
    return monkeypatch


def test_without_a_shared_store_there_is_nothing_to_compare_with(
    environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    environment.delenv(f"{PREFIX}REDIS_URL", raising=False)
    assert main() == EXIT_CONFIG
    assert f"{PREFIX}REDIS_URL" in capsys.readouterr().err


def test_neither_keys_nor_signing_key_are_needed() -> None:
    given = {"BACKEND": "kubernetes", "NAMESPACE": "boxes", "INSTALLATION": "r", "SIDECAR_IMAGE": "s"}
    given |= {"READY_URL": "http://10.0.0.1:8082", "REDIS_URL": "redis://r:6379/0"}
    read = OperatorSettings.from_environment({PREFIX + name: value for name, value in given.items()})
    assert (read.redis_url, read.place.namespace) == ("redis://r:6379/0", "boxes")


def test_a_missing_setting_is_named(environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    environment.setenv(f"{PREFIX}REDIS_URL", "redis://r:6379/0")
    environment.delenv(f"{PREFIX}NAMESPACE")
    assert main() == EXIT_CONFIG
    assert f"{PREFIX}NAMESPACE" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "value"), [("NODE_PROOF", "required"), ("NODE_PROOF", "maybe"), ("NODE_PROOF_SELECTOR", "{}")]
)
def test_what_is_about_proofs_is_refused_without_agents_that_tell_them(
    environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, value: str
) -> None:
    environment.setenv(f"{PREFIX}REDIS_URL", "redis://r:6379/0")
    environment.setenv(PREFIX + name, value)
    assert main() == EXIT_CONFIG
    assert PREFIX + name in capsys.readouterr().err
