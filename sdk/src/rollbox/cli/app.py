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


class _Commands(TyperGroup):
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
app.add_typer(group.app, name="group")
app.add_typer(pool.app, name="pool")
app.add_typer(quota.app, name="quota")
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
