"""The state directory: private, locked, bounded in length."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from controlplane.embedded import state
from controlplane.embedded.up_error import UpError
from controlplane.settings import SettingError


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that is not there yet, in a place of a short name."""
    with tempfile.TemporaryDirectory(prefix="rb-") as made:
        yield Path(made) / "s"


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_what_is_secret_is_private(folder: Path) -> None:
    with state.opened(folder) as directory:
        directory.keys()
        directory.write_client_settings("http://127.0.0.1:1", "rbx_x")
        assert mode(directory.path) == mode(directory.path / "sandboxes") == 0o700
        assert mode(directory.path / "ready") == 0o711
        keys = (directory.signing_key, directory.settings_key, directory.feed_key, directory.api_key)
        assert {mode(path) for path in (*keys, directory.client)} == {0o600}


def test_keys_outlive_a_restart_and_what_clients_need_does_not(folder: Path) -> None:
    with state.opened(folder) as directory:
        key, signing = directory.keys(), directory.signing_key.read_bytes()
        directory.write_client_settings("http://127.0.0.1:1", key)
        directory.sweep()
    with state.opened(folder) as again:
        assert (again.keys(), again.signing_key.read_bytes()) == (key, signing)
        assert not again.client.exists()


def test_a_second_one_is_refused_by_process_number(folder: Path) -> None:
    with (
        state.opened(folder),
        pytest.raises(UpError, match=r"another rollbox up runs on .*process \d+"),
        state.opened(folder),
    ):
        pass


def test_a_path_that_is_too_long_for_sockets_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="at most 66 bytes"), state.opened(tmp_path / ("x" * 80)):
        pass


def test_a_path_that_cannot_be_used_is_refused() -> None:
    with pytest.raises(UpError, match="cannot be used"), state.opened(Path("/proc/none")):
        pass
