"""The Typer application with all commands."""

import gc
import importlib
import inspect
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup

from rollbox import settings
from rollbox._version import __version__
from rollbox.cli import completion, output
from rollbox.cli.values import taken_as_they_are

# Module and function (or group) of each command, in the order of the help. Only the module of the command that runs is
# imported; help imports them all.
_COMMANDS = {
    "up": "up:up",
    "bridge": "bridge:app",
    "mcp": "mcp:mcp",
    "create": "sandboxes:create",
    "exec": "exec:exec_",
    "python": "python:python",
    "grade": "grade:grade",
    "processes": "processes:processes",
    "attach": "processes:attach",
    "kill": "processes:kill",
    "cp": "files:cp",
    "ls": "paths:ls",
    "stat": "paths:stat",
    "mkdir": "paths:mkdir",
    "mv": "paths:mv",
    "rm": "paths:rm",
    "watch": "paths:watch",
    "egress": "egress:app",
    "expose": "ports:expose",
    "unexpose": "ports:unexpose",
    "share": "key:share",
    "port-forward": "port_forward:port_forward",
    "commit": "image:commit",
    "checkpoint": "image:checkpoint",
    "ps": "sandboxes:ps",
    "logs": "logs:logs",
    "events": "events:events",
    "audit": "audit:audit",
    "why": "why:why",
    "top": "top:top",
    "ui": "ui:ui",
    "delete": "sandboxes:delete",
    "preflight": "quota:preflight",
    "capacity": "capacity:capacity",
    "node": "node:app",
    "doctor": "doctor:doctor",
    "bench": "bench:bench",
    "config": "config:app",
    "completion": "completion:completion",
    "group": "group:app",
    "image": "image:app",
    "pool": "pool:app",
    "dataset": "dataset:app",
    "quota": "quota:app",
    "key": "key:app",
}
# Objects that are made, less those that are freed, between two looks for garbage: some seconds of the busiest command.
_COLLECT_AFTER = 100_000
# Longer than any first sentence.
_UNCUT = 1000


class _Group(TyperGroup):
    """Takes values as they are (see `values`), and lists commands with the whole first sentence of their help.

    Without Rich, Typer cuts what does not fit into the rest of a line.
    """

    def get_params(self, ctx: Any) -> list[Any]:  # noqa: ANN401
        return taken_as_they_are(super().get_params(ctx))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401
        command = super().get_command(ctx, cmd_name)
        if isinstance(command, TyperCommand) and "get_params" not in vars(command):
            of_command = command.get_params
            vars(command)["get_params"] = lambda ctx: taken_as_they_are(of_command(ctx))
        return command

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, one.get_short_help_str(limit=_UNCUT)) for name, one in commands if one])


def _found(name: str) -> Any:  # noqa: ANN401
    """Import the function of a command, or the application of a group."""
    module, _, attribute = _COMMANDS[name].partition(":")
    return getattr(importlib.import_module(f"rollbox.cli.{module}"), attribute)


def _help(found: Any) -> str:  # noqa: ANN401
    return str(found.info.help) if isinstance(found, typer.Typer) else inspect.getdoc(found) or ""


class _Imported(Mapping[str, Any]):
    """The commands by name; the module of one is imported when it is asked for."""

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401
        found, only = _found(name), _application(_Group)
        if isinstance(found, typer.Typer):
            only.add_typer(found, name=name, cls=_Group)
        else:
            only.command(name)(found)
        return typer.main.get_group(only).commands[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_COMMANDS)

    def __len__(self) -> int:
        return len(_COMMANDS)


class _Commands(_Group):
    """Has all commands of `_COMMANDS`, and runs each so that a bad stdout ends it without a traceback."""

    def __init__(self, **attributes: Any) -> None:  # noqa: ANN401
        super().__init__(**{**attributes, "commands": _Imported()})

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401
        # Typer goes over the items, which would import and build every command.
        return [*self.commands]

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401
        # Only the texts: to build every command takes as long as to import them.
        rows = [(name, TyperCommand(name, help=_help(_found(name)))) for name in _COMMANDS]
        with formatter.section("Commands"):
            formatter.write_dl([(name, one.get_short_help_str(limit=_UNCUT)) for name, one in rows])

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401
        with output.exit_on_bad_stdout():
            return super().invoke(ctx)


def _application(group: type[TyperGroup]) -> typer.Typer:
    # Help is plain text: Rich would take as long to import as all the rest of `rollbox --help` takes.
    return typer.Typer(
        cls=group,
        name="rollbox",
        help="Isolated sandboxes for untrusted code.",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )


app = _application(_Commands)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit()


@app.callback()
def rollbox(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and exit."
    ),
    context: str | None = typer.Option(
        None, "--context", metavar="NAME", help="Call the gateway of this context, whatever the environment says."
    ),
) -> None:
    """Isolated sandboxes for untrusted code."""
    # The variables stay: the context may name one of them as that of its key.
    settings.context_first = context is not None
    if context is not None:
        os.environ[settings.CONTEXT] = context


def main() -> None:
    """Run the command line with the arguments of the process.

    Imports leave no garbage, and the default threshold has all that they make looked through dozens of times; what is
    left at the end goes with the process. Both together are a fifth of the processor time of a command.
    """
    gc.set_threshold(_COLLECT_AFTER)
    output.standard_streams()
    completion.prepare()
    try:
        # Help and the version are printed before any command is invoked.
        with output.exit_on_bad_stdout():
            app()
    except typer.Exit as ended:
        sys.exit(ended.exit_code)
    finally:
        output.flush_stderr()
        gc.freeze()
