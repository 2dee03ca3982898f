"""What an import of `rollbox` and a start of the command line import; all public names are found all the same."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import rollbox
from tests.support.gateway_fake import FakeGateway

# Each takes longer to import than the rest of `rollbox --help` needs to run.
HEAVY = {"aiohttp", "asyncio", "email", "pydantic", "rich", "ssl", "yarl"}
# Run in a new interpreter; it prints which top-level modules the code in the middle has imported.
FRAME = """
import json, sys
before = set(sys.modules)
{}
print(json.dumps(sorted({{name.partition(".")[0] for name in set(sys.modules) - before}})))
"""
COMMAND = """
from rollbox.cli import app
try:
    app({})
except SystemExit as end:
    assert not end.code, end.code
"""
EVERY_HELP = """
import typer.main
from typer.testing import CliRunner
from rollbox.cli import app

def helped(*path):
    told = CliRunner().invoke(app, [*path, "--help"])
    assert told.exit_code == 0 and "Usage" in told.stdout, told.output

root = typer.main.get_command(app)
assert {"ps", "exec", "group"} <= set(root.commands)
for name, command in root.commands.items():
    helped(name)
    for below in getattr(command, "commands", ()):
        helped(name, below)
"""


def run(code: str) -> str:
    """Run code in a new interpreter; returns its last line of output."""
    environment = {**os.environ, "PYTHONPATH": str(Path(rollbox.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1] if done.stdout else ""


def imported(code: str) -> set[str]:
    return set(json.loads(run(FRAME.format(code))))


def test_every_public_name_is_found_in_a_new_process() -> None:
    for name in rollbox.__all__:
        assert getattr(rollbox, name) is not None
    run("from rollbox import *; import rollbox; assert set(rollbox.__all__) <= set(globals())")
    run("import rollbox; assert set(rollbox.__all__) <= set(dir(rollbox))")
    run("import rollbox; assert rollbox.Client is rollbox.client.Client is rollbox.Client")


def test_modules_are_found_without_an_import_of_their_own() -> None:
    run("import rollbox; assert issubclass(rollbox.errors.NotFound, rollbox.SandboxError)")
    run("import rollbox; assert rollbox.sync.Sandbox is not rollbox.Sandbox")
    run("import rollbox; assert rollbox.ports.PortStream")


def test_an_error_is_unpickled_where_only_rollbox_is_imported() -> None:
    run(
        "import pickle, rollbox\n"
        "error = pickle.loads(pickle.dumps(rollbox.errors.NotFound('no x', sandbox_id='sb-1')))\n"
        "assert (type(error), error.detail, error.sandbox_id) == (rollbox.errors.NotFound, 'no x', 'sb-1')\n"
    )


@pytest.mark.parametrize("name", ["NoSuchName", "no_such_module", "_no_such_module", "__wrapped__"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(AttributeError, match=name):
        getattr(rollbox, name)


def test_the_three_lists_of_public_names_agree() -> None:
    tree = ast.parse(Path(rollbox.__file__).read_text())
    guarded = next(node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    checked: dict[str, str | None] = {}
    for node in guarded.body:
        assert isinstance(node, ast.ImportFrom)
        checked |= {alias.name: node.module for alias in node.names}
    assert checked.pop("errors") == "rollbox"
    table: dict[str, str] = vars(rollbox)["_MODULES"]
    assert checked == {name: f"rollbox.{module}" for name, module in table.items()}
    assert sorted([*checked, "errors", "__version__"]) == rollbox.__all__


def test_the_package_imports_nothing_heavy() -> None:
    assert not imported("import rollbox") & {*HEAVY, "rich", "typer"}


def test_no_help_imports_anything_heavy() -> None:
    assert not imported(COMMAND.format(["--help"])) & HEAVY
    assert not imported(EVERY_HELP) & HEAVY


def test_a_list_of_sandboxes_imports_only_what_calls_the_gateway(apart: FakeGateway) -> None:
    code = COMMAND.format(["ps"]) + "made = sorted(name for name in sys.modules if name.startswith('rollbox.'))\n"
    made = json.loads(run(f"import json, sys\n{code}print(json.dumps(made))"))
    assert apart.url
    of_calls = "_problem _version breaker deadline errors gateway known_sandboxes labels printable quantity "
    of_calls += "tracing record recording recording.current retry settings stalled_gateway"
    of_commands = "cli cli.app cli.imports cli.layout cli.options cli.output cli.sandboxes cli.values cli.completion"
    expected = {"transport", *of_calls.split(), *of_commands.split()}
    names = {name.removeprefix("rollbox.") for name in made}
    assert {name for name in names if name.partition(".")[0] != "leases"} == expected


def test_the_command_line_looks_for_no_garbage_in_what_it_imports() -> None:
    code = """
import atexit, gc, sys
atexit.register(lambda: print(gc.get_threshold()[0] >= 100_000, gc.isenabled(), gc.get_freeze_count() > 0))
from rollbox.cli import main
sys.argv = ["rollbox", "--version"]
main()
"""
    assert run(code) == "True True True"


@pytest.mark.parametrize("command", [["ps", "--label", "a=b"], ["pool", "list"]])
def test_a_list_is_printed_without_rich_and_pydantic(apart: FakeGateway, command: list[str]) -> None:
    made = imported(COMMAND.format(command))
    assert apart.url
    assert "aiohttp" in made
    assert not made & {"rich", "pydantic"}


def test_the_library_is_imported_where_the_modules_of_unix_are_not() -> None:
    code = "import sys\nsys.modules.update(dict.fromkeys(('resource', 'termios', 'tty', 'fcntl', 'pwd', 'grp')))\n"
    run = subprocess.run(
        [sys.executable, "-c", f"{code}import rollbox, rollbox.sync\nrollbox.Client\nrollbox.Sandbox\n"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (run.returncode, run.stderr) == (0, "")
