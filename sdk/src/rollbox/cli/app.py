"""The Typer application with all commands."""

from typing import Any

import typer
from typer.core import TyperGroup

from rollbox._version import __version__
from rollbox.cli import group, output, pool, quota
from rollbox.cli.doctor import doctor
from rollbox.cli.exec import exec_
from rollbox.cli.files import cp
from rollbox.cli.paths import ls, mkdir, mv, rm, stat, watch
from rollbox.cli.port_forward import port_forward
from rollbox.cli.ports import expose, unexpose
from rollbox.cli.processes import attach, kill, processes
from rollbox.cli.sandboxes import create, delete, ps
from rollbox.cli.top import top
from rollbox.cli.up import up
from rollbox.cli.why import why


class _Group(TyperGroup):
    """Its `--help` is False when it is not given.

    Typer (0.29) leaves it None and has pydantic convert that to a bool: an import of 0.1 s before any command's help.
    """

    def get_help_option(self, ctx: Any) -> Any:  # noqa: ANN401
        option = super().get_help_option(ctx)
        if option is not None and option.default is None:
            option.default = False
        return option


class _Commands(_Group):
    """Runs every command so that a closed stdout ends it without a traceback."""

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401
        with output.while_read():
            return super().invoke(ctx)


app = typer.Typer(
    cls=_Commands,
    name="rollbox",
    help="Isolated sandboxes for untrusted code.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("up")(up)
app.command("create")(create)
app.command("exec")(exec_)
app.command("processes")(processes)
app.command("attach")(attach)
app.command("kill")(kill)
app.command("cp")(cp)
app.command("ls")(ls)
app.command("stat")(stat)
app.command("mkdir")(mkdir)
app.command("mv")(mv)
app.command("rm")(rm)
app.command("watch")(watch)
app.command("expose")(expose)
app.command("unexpose")(unexpose)
app.command("port-forward")(port_forward)
app.command("ps")(ps)
app.command("why")(why)
app.command("top")(top)
app.command("delete")(delete)
app.add_typer(group.app, name="group", cls=_Group)
app.add_typer(pool.app, name="pool", cls=_Group)
app.add_typer(quota.app, name="quota", cls=_Group)
app.command("preflight")(quota.preflight)
app.command("doctor")(doctor)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit()


@app.callback()
def rollbox(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    """Isolated sandboxes for untrusted code."""


def main() -> None:
    """Run the command line with the arguments of the process."""
    app()
