"""A bad setting is told at once, with a status of its own."""

import pytest

from controlplane.__main__ import main
from controlplane.settings import EXIT_CONFIG, PREFIX


@pytest.mark.parametrize(("name", "value"), [("BACKEND", "moon"), ("BACKEND", "kubernetes")])
def test_a_bad_setting_ends_the_process_before_anything_is_waited_for(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(PREFIX + name, value)
    monkeypatch.setenv(f"{PREFIX}REDIS_URL", "redis://127.0.0.1:1/0")
    assert main() == EXIT_CONFIG
    assert PREFIX in capsys.readouterr().err
