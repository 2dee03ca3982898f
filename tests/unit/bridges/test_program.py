"""What bridges read of their command line, and which owner a client's key stands for."""

from __future__ import annotations

import socket
from pathlib import Path
from types import ModuleType

import pytest

from rollbox_bridges import program
from rollbox_bridges.e2b import __main__ as e2b
from rollbox_bridges.fusion import __main__ as fusion
from rollbox_bridges.keys import owner_key
from rollbox_bridges.prime import __main__ as prime


def test_files_of_keys_have_lines_of_texts(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    file.write_text('"mine" = "rbx_1"\n')
    assert program.keys_of(file) == {"mine": "rbx_1"}
    assert program.keys_of(None) == {}
    for content in ("", "mine = 1", 'mine = ""'):
        file.write_text(content)
        with pytest.raises(program.SettingError, match="has no lines of the form"):
            program.keys_of(file)
    file.write_bytes(b"mine = \xff")
    for one in (file, tmp_path / "none", tmp_path):
        with pytest.raises(program.SettingError, match="cannot be read"):
            program.keys_of(one)


def test_a_secret_is_of_a_file_before_the_variable_and_never_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "secret"
    file.write_text("from the file, long enough\n")
    monkeypatch.setenv(program.SECRET, "from the variable")
    assert program.secret_of(file) == b"from the file, long enough"
    assert program.secret_of(None) == b"from the variable"
    monkeypatch.setenv(program.SECRET, "short")
    with pytest.raises(program.SettingError, match="5 bytes, fewer than 16"):
        program.secret_of(None)
    with pytest.raises(program.SettingError, match="cannot be read"):
        program.secret_of(tmp_path)
    monkeypatch.delenv(program.SECRET)
    assert program.secret_of(None) != program.secret_of(None)


def test_pairs_are_told_once_each() -> None:
    assert program.pairs_of("--template", ["a=x:1", "b=y=2"]) == {"a": "x:1", "b": "y=2"}
    for given in (["a"], ["a=1", "a=2"]):
        with pytest.raises(program.SettingError, match="--template is NAME=VALUE, each name once"):
            program.pairs_of("--template", given)


@pytest.mark.parametrize("key", ["", "two words", "tab\t", "\u00e9"])
def test_what_cannot_be_a_key_stands_for_no_owner(key: str) -> None:
    assert owner_key(key, {}) is None


def test_keys_stand_for_themselves_or_for_what_the_file_says() -> None:
    assert owner_key("rbx_1", {}) == "rbx_1"
    assert owner_key("mine", {"mine": "rbx_1"}) == "rbx_1"
    assert owner_key("rbx_1", {"mine": "rbx_1"}) is None


def test_the_options_of_e2bs_bridge_are_its_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(program.SECRET, "s" * 16)
    words = ["--template", "a=x:1", "--private-ports", "--egress", "packages", "--url", "http://g"]
    settings = e2b.settings_of(e2b.parser().parse_args(words))
    assert (settings.templates, settings.public_ports, settings.egress) == ({"a": "x:1"}, False, "packages")
    assert (settings.url, settings.secret) == ("http://g", b"s" * 16)


def test_an_address_has_a_port() -> None:
    assert program.address_of("[::1]:80") == ("::1", 80)
    assert program.address_of(":0") == ("127.0.0.1", 0)
    for listen in ("localhost", "a:b", "a:65536", "a:-1", ""):
        with pytest.raises(program.SettingError, match="no HOST:PORT"):
            program.address_of(listen)


@pytest.mark.parametrize("bridge", [e2b, prime, fusion])
def test_what_cannot_be_listened_on_ends_the_start(bridge: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        for listen, reason in ((address, "Address already in use"), ("nowhere.invalid:0", "cannot listen")):
            with pytest.raises(SystemExit) as ended:
                bridge.main(["--listen", listen])
            assert ended.value.code == 64
            assert reason in capsys.readouterr().err
