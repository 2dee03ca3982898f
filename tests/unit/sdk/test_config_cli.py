"""`rollbox config`: named contexts, where their keys are, and which one is taken."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from rollbox import settings
from rollbox.cli import app
from rollbox.errors import InvalidArgument, Unauthenticated
from tests.support.gateway_fake import API_KEY, FakeGateway


def rollbox(*arguments: str, stdin: str = "") -> Result:
    return CliRunner().invoke(app, list(arguments), input=stdin)


@pytest.fixture
def file() -> Path:
    return Path(os.environ["ROLLBOX_CONFIG"])


def test_a_context_is_set_and_the_first_one_is_taken(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert rollbox("config", "set", "prod", "https://prod.example/", "--key-env", "PROD_KEY").stdout == "prod\n"
    assert rollbox("config", "set", "lab", "http://lab:7420", "--key-stdin", stdin="rbx_lab\n").exit_code == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with pytest.raises(Unauthenticated, match="PROD_KEY"):
        settings.resolve()
    monkeypatch.setenv("PROD_KEY", "rbx_prod")
    found = settings.resolve()
    assert (found.url, found.api_key, found.source) == ("https://prod.example", "rbx_prod", f"context prod of {file}")
    rollbox("config", "use", "lab")
    assert settings.resolve().api_key == "rbx_lab"
    monkeypatch.setenv("ROLLBOX_CONTEXT", "prod")
    assert settings.resolve().url == "https://prod.example"
    rollbox("config", "remove", "lab")
    assert "rbx_lab" not in file.read_text()


def test_no_key_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    rollbox("config", "set", "lab", "http://lab:7420", "--key-stdin", stdin="rbx_lab\n")
    for arguments in (("list",), ("list", "--json"), ("show",), ("show", "--json")):
        shown = rollbox("config", *arguments)
        assert (shown.exit_code, "rbx_lab" in shown.output) == (0, False)


def test_the_environment_comes_first_and_the_stack_of_this_machine_last(tmp_path: Path) -> None:
    rollbox("config", "set", "prod", "https://prod", "--key-stdin", stdin="rbx_prod")
    given = {"ROLLBOX_CONFIG": os.environ["ROLLBOX_CONFIG"], "ROLLBOX_STATE_DIR": str(tmp_path)}
    (tmp_path / "client.json").write_text(json.dumps({"url": "http://local", "api_key": "rbx_local"}))
    assert settings.resolve(environ={**given, "ROLLBOX_URL": "http://e", "ROLLBOX_API_KEY": "k"}).url == "http://e"
    assert settings.resolve(environ=given).url == "https://prod"
    with pytest.raises(Unauthenticated):
        settings.resolve("http://elsewhere", environ=given)
    rollbox("config", "use", "-")
    assert settings.resolve(environ=given).url == "http://local"


def test_the_option_goes_before_the_environment(apart: FakeGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    rollbox("config", "set", "here", apart.url, "--key-stdin", stdin=API_KEY)
    monkeypatch.setenv("ROLLBOX_URL", "http://127.0.0.1:1")
    assert rollbox("--context", "here", "ps").exit_code == 0
    unknown = rollbox("--context", "hare", "ps")
    assert (unknown.exit_code, "there are: here" in unknown.stderr) == (2, True)


def test_the_option_takes_a_context_whose_key_is_in_the_usual_variable(
    apart: FakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    rollbox("config", "set", "here", apart.url, "--key-env", "ROLLBOX_API_KEY")
    rollbox("config", "set", "lab", apart.url, "--key-stdin", stdin="rbx_lab")
    monkeypatch.setenv("ROLLBOX_URL", "http://127.0.0.1:1")
    assert rollbox("--context", "here", "ps").exit_code == 0
    assert "unauthenticated" in rollbox("--context", "lab", "ps", "--json").output
    assert rollbox("config", "show").stdout.count("127.0.0.1:1") == 1


def test_where_the_file_is() -> None:
    assert settings.contexts_path({"ROLLBOX_CONFIG": "/c", "XDG_CONFIG_HOME": "/x"}) == Path("/c")
    assert settings.contexts_path({"XDG_CONFIG_HOME": "/x", "HOME": "/h"}) == Path("/x/rollbox/config.toml")
    assert settings.contexts_path({"HOME": "/h"}) == Path("/h/.config/rollbox/config.toml")
    assert settings.contexts_path({}) is None


@pytest.mark.parametrize(
    "text",
    ["[", "current = 5", "contexts = 1", "[contexts.a]\nurl = 5", "[contexts.a]\nlater = 'x'\nurl = 'y'", "later = 1"],
)
def test_a_file_that_it_did_not_write_is_named(file: Path, text: str) -> None:
    file.write_text(text)
    with pytest.raises(InvalidArgument, match="is not the file"):
        settings.resolve()
    assert rollbox("config", "list").exit_code == 2


def test_a_key_that_others_may_read_is_refused(file: Path) -> None:
    rollbox("config", "set", "lab", "http://lab", "--key-stdin", stdin="rbx_lab\n")
    file.chmod(0o644)
    with pytest.raises(InvalidArgument, match="others may read it") as caught:
        settings.resolve()
    assert f"chmod 600 {file}" in caught.value.hint


@pytest.mark.parametrize(
    ("arguments", "stdin"),
    [
        (("set", "a", "ftp://x", "--key-stdin"), "k"),
        (("set", "a", "http://x", "--key-stdin"), "\n"),
        (("set", "a b", "http://x", "--key-stdin"), "k"),
        (("set", "a", "http://x"), ""),
        (("set", "a", "http://x", "--key-stdin", "--key-env", "K"), "k"),
        (("use", "none"), ""),
        (("remove", "none"), ""),
    ],
)
def test_what_is_wrong_is_refused_and_changes_nothing(file: Path, arguments: tuple[str, ...], stdin: str) -> None:
    refused = rollbox("config", *arguments, stdin=stdin)
    assert (refused.exit_code, refused.stdout, file.exists()) == (2, "", False)


def test_the_nearest_name_is_suggested() -> None:
    rollbox("config", "set", "production", "http://x", "--key-env", "K")
    assert "Did you mean production?" in rollbox("config", "use", "prodction").stderr


def test_names_and_keys_with_odd_letters_come_back(file: Path) -> None:
    rollbox("config", "set", "a.b-c_d", 'http://x/"y"', "--key-stdin", stdin='k"\\é\n'.replace("é", "e"))
    assert settings.resolve().api_key == 'k"\\e'
