"""Settings: good ones are read, bad ones are named with their value and rule."""

from pathlib import Path

import pytest

from controlplane.settings import Listen, SettingError, Settings


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    binary = tmp_path / "binary"
    binary.touch()
    return {
        "ROLLBOX_CONTROLPLANE_STATE_DIR": "/run/rb",
        "ROLLBOX_CONTROLPLANE_API_KEYS": "alice:0123456789abcdef,bob:fedcba9876543210",
        "ROLLBOX_CONTROLPLANE_SIGNING_KEY_FILE": str(binary),
        "ROLLBOX_CONTROLPLANE_ENGINE_URL": "unix:///run/docker.sock",
        "ROLLBOX_CONTROLPLANE_SIDECAR_BINARY": str(binary),
        "ROLLBOX_CONTROLPLANE_TARGET_BINARY": str(binary),
    }


def test_what_is_left_out_lies_in_the_state_directory(environ: dict[str, str]) -> None:
    settings = Settings.from_environment(environ)
    assert settings.ready == Listen(path=Path("/run/rb/ready/ready.sock"))
    assert settings.api_keys == {"0123456789abcdef": "alice", "fedcba9876543210": "bob"}
    assert settings.engine_url == "unix:///run/docker.sock"
    assert (settings.starts_in_flight, settings.max_sandboxes) == (4, 0)


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("STATE_DIR", "relative", "STATE_DIR is 'relative': must be an absolute path"),
        ("API", "nowhere", "API is 'nowhere': must be unix:/path or host:port"),
        ("API", "host:99999", "must be unix:/path or host:port"),
        ("API", "unix:relative", "must be unix: and an absolute path"),
        ("READY", "unix:/" + "x" * 108, "a socket path has at most 107 bytes"),
        ("API_KEYS", "alice", r"API_KEYS is '\(hidden\)': must be owner:key"),
        ("API_KEYS", "alice:short", "keys of at least 16 characters"),
        ("SIGNING_KEY_FILE", "/does/not/exist", "must name a file that exists"),
        ("ENGINE_URL", "tcp://1.2.3.4:2375", "must be unix: and an absolute path"),
        ("STARTS_IN_FLIGHT", "0", "must be a whole number from 1 to 1024"),
        ("MAX_SANDBOXES", "many", "must be a whole number from 0 to 1000000"),
    ],
)
def test_a_bad_setting_is_named_with_value_and_rule(
    environ: dict[str, str], name: str, value: str, complaint: str
) -> None:
    with pytest.raises(SettingError, match=complaint):
        Settings.from_environment({**environ, f"ROLLBOX_CONTROLPLANE_{name}": value})


def test_a_missing_setting_is_named(environ: dict[str, str]) -> None:
    for name in environ:
        with pytest.raises(SettingError, match=f"{name} is not set"):
            Settings.from_environment({key: value for key, value in environ.items() if key != name})
