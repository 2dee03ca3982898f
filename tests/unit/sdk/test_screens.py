"""Every screen of the command line, as it is kept in `screens`: in a pipe, and on a terminal of 80 columns."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import rollbox as sdk
from rollbox.cli import app
from rollbox.cli.app import _COMMANDS
from tests.support.gateway_fake import FakeGateway, Fault
from tests.support.screens import assert_screen

NOW_S = 1_800_000_000.0
GROUPS = {"group": "list show delete", "pool": "list show set drain delete", "quota": "list show set remove"}
GROUPS |= {"node": "list show drain undrain", "image": "list prefetch commits remove convert scrub-git"}
GROUPS |= {"bridge": "docker e2b fusion prime", "egress": "show set log preset", "config": "list show set use remove"}


def rollbox(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "80", "TERM": "dumb", "NO_COLOR": "1"})


def screen(name: str, *arguments: str, fake: FakeGateway | None = None) -> None:
    """Compare what a command prints: its data, its messages and its exit code."""
    result = rollbox(*arguments)
    said = f"$ rollbox {' '.join(arguments)}\n{result.stdout}"
    said += f"-- stderr\n{result.stderr}" if result.stderr else ""
    said += f"-- exit code {result.exit_code}\n" if result.exit_code else ""
    assert_screen(f"{name}.txt", said if fake is None else said.replace(fake.url, "http://gateway"))


@pytest.fixture
def installation(apart: FakeGateway, monkeypatch: pytest.MonkeyPatch) -> FakeGateway:
    """A few sandboxes, pools and quotas, at a fixed time."""
    monkeypatch.setattr("time.time", lambda: NOW_S)
    for number, labels in enumerate(
        (["rollbox.group=g1", "rollbox.sample=0"], ["rollbox.group=g1", "rollbox.sample=1"], ["team=a"])
    ):
        options = [part for label in labels for part in ("--label", label)]
        rollbox("create", f"registry.example/some/team/image:{number}", *options)
        box = apart.sandboxes[f"sb-{number + 1}"]
        box["created_at_ms"] = round(1000 * (NOW_S - 90 * (number + 1)))
        box |= {
            "ready_at_ms": box["created_at_ms"] + 1900,
            "expires_at_ms": round(1000 * (NOW_S + 3600)),
            "source": "cold",
        }
    apart.end("sb-2", "disk_full")
    rollbox("pool", "set", "py", "python", "--warm", "2:8")
    rollbox("quota", "set", "team-a", "--sandboxes", "64", "--memory", "1Ti")
    apart.requests.clear()
    return apart


SCREENS = {
    "ps": ("ps",),
    "ps_all": ("ps", "--all"),
    "ps_label": ("ps", "--label", "team=a"),
    "group_list": ("group", "list", "--all"),
    "group_show": ("group", "show", "g1"),
    "pool_list": ("pool", "list"),
    "pool_show": ("pool", "show", "py"),
    "quota": ("quota",),
    "quota_list": ("quota", "list"),
    "image_list": ("image", "list"),
    "image_commits": ("image", "commits"),
    "why": ("why", "sb-2"),
    "create_refused": ("create", "missing"),
    "unknown_sandbox": ("why", "sb-11"),
    "unknown_pool": ("pool", "show", "none"),
    "unknown_group": ("group", "show", "none"),
    "watch_without_terminal": ("ps", "--watch"),
    "unknown_option": ("ps", "--nope"),
    "unknown_command": ("pss",),
}


@pytest.mark.parametrize("name", SCREENS)
def test_screen(installation: FakeGateway, name: str) -> None:
    screen(name, *SCREENS[name], fake=installation)


def test_screen_of_top(installation: FakeGateway) -> None:
    shown = rollbox("top").stdout
    assert_screen("top.txt", re.sub(r"\d+%", "0%", shown))


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Makes stdout a terminal of so many columns."""

    def of(columns: int) -> None:
        monkeypatch.setattr("rollbox.cli.output.on_terminal", lambda: True)
        monkeypatch.setattr("shutil.get_terminal_size", lambda *_: os.terminal_size((columns, 24)))

    return of


@pytest.mark.parametrize("name", ["ps", "group_list", "pool_list", "why"])
def test_screen_of_a_terminal_of_60_columns(
    installation: FakeGateway, narrow: Callable[[int], None], name: str
) -> None:
    narrow(60)
    assert_screen(f"{name}_60.txt", rollbox(*SCREENS[name]).stdout)
    assert installation.url


NARROW = [name for name in SCREENS if not name.startswith(("unknown", "create", "watch"))]


@pytest.mark.parametrize("columns", [80, 60, 40])
@pytest.mark.parametrize("name", NARROW)
def test_a_narrow_terminal_breaks_no_word_and_loses_none(
    installation: FakeGateway, narrow: Callable[[int], None], name: str, columns: int
) -> None:
    piped = rollbox(*SCREENS[name]).stdout
    narrow(columns)
    shown = rollbox(*SCREENS[name]).stdout
    assert installation.url
    assert all(len(line) <= columns or len(line.split()) == 1 for line in shown.splitlines())
    # A row that is a paragraph names all columns but its first.
    firsts = ("id", "group", "pool", "owner", "node", "image", "when", "sample")
    assert not Counter(piped.split()) - Counter([*shown.split(), *firsts])


@pytest.mark.parametrize(
    "name", ["", *_COMMANDS, *(f"{one} {two}" for one, all_ in GROUPS.items() for two in all_.split())]
)
def test_screen_of_help(name: str) -> None:
    shown = rollbox(*name.split(), "--help")
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert_screen(f"help/{name.replace(' ', '_') or 'rollbox'}.txt", shown.stdout)


def test_screens_of_a_platform_that_does_not_answer(apart: FakeGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    apart.fail("list", Fault("unauthenticated"))
    screen("wrong_key", "ps")
    for name in ("ROLLBOX_URL", "ROLLBOX_API_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("ROLLBOX_STATE_DIR", "/nowhere")
    screen("no_settings", "ps")


def test_names_that_would_control_a_terminal_are_shown_and_do_nothing(apart: FakeGateway) -> None:
    rollbox("create", "python", "--label", "run=x")
    box = apart.sandboxes["sb-1"]
    box |= {"image": "evil\x1b]0;owned\x07", "labels": {"\x1b[2J": "\u202egnp", "a": "b\nc"}}
    for arguments in (("ps",), ("why", "sb-1"), ("group", "list")):
        shown = rollbox(*arguments).stdout
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", shown)
    assert "evil\\x1b]0;owned\\x07" in rollbox("ps").stdout
    assert len(rollbox("ps").stdout.splitlines()) == 2


def test_the_nearest_id_is_suggested_also_of_what_was_not_typed_to_its_end(apart: FakeGateway) -> None:
    rollbox("create", "python")
    apart.sandboxes["sb-longer-name"] = {**apart.sandboxes.pop("sb-1"), "id": "sb-longer-name"}
    for typed in ("sb-longer-nmae", "sb-lon"):
        refused = rollbox("exec", typed, "--", "true")
        assert (refused.exit_code, "Did you mean sb-longer-name?" in refused.stderr) == (2, True)
    assert "Did you mean" not in rollbox("exec", "quite-another", "--", "true").stderr


def completed(line: str, shell: str = "bash") -> list[str]:
    """Ask for completions as a shell does, in a process of its own."""
    words = line.split(" ")
    asked = {
        "_ROLLBOX_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": "\n".join(words),
        "COMP_CWORD": str(len(words) - 1),
    }
    code = "import sys; sys.argv = ['rollbox']; from rollbox.cli import main; main()"
    environment = {"PYTHONPATH": str(Path(sdk.__file__).parents[1]), "PATH": "/usr/bin:/bin", **asked}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    return done.stdout.split()


def test_commands_and_options_are_completed() -> None:
    assert {"ps", "pool", "processes", "preflight", "port-forward", "python"} == set(completed("rollbox p"))
    assert completed("rollbox pool s") == ["show", "set"]
    assert "--label" in completed("rollbox ps --l")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_what_a_shell_runs_to_complete_is_printed(shell: str) -> None:
    printed = rollbox("completion", shell)
    assert (printed.exit_code, "_ROLLBOX_COMPLETE" in printed.stdout) == (0, True)
    if shell == "bash":
        subprocess.run(["bash", "-n"], input=printed.stdout, text=True, check=True)


def test_another_shell_is_refused() -> None:
    assert rollbox("completion", "csh").exit_code == 2
