"""`rollbox dataset`: files of the installation that sandboxes mount read only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rollbox.cli import output
from rollbox.cli.options import Json

if TYPE_CHECKING:
    from rollbox.client import Client
    from rollbox.dataset import DatasetRecord

app = typer.Typer(
    help="Data sets: files that sandboxes mount read only (`rollbox create --mount`).", no_args_is_help=True
)

Name = Annotated[str, typer.Argument(help="A data set.")]
_COLUMNS = ("dataset", "source", "owners", "state")


@app.command("list")
def list_(json: Json = False) -> None:
    """List the data sets that you may mount; operators see all, with their sources."""

    async def call(client: Client) -> list[DatasetRecord]:
        return await client.datasets()

    found = output.run(call, what="listing data sets", as_json=json)
    if json:
        output.data([one.to_json() for one in found])
        return
    output.table(_COLUMNS, [_row(one) for one in found], told=True)
    if not found and output.on_terminal():
        output.message("no data sets; an operator declares them: `rollbox dataset set`, `rollbox up --dataset`")


@app.command()
def show(name: Name, json: Json = False) -> None:
    """Show one data set, and what keeps it from being mounted."""
    _print(output.run(lambda client: client.dataset(name), what="fetching the data set", as_json=json), json=json)


@app.command("set")
def set_(
    name: Annotated[str, typer.Argument(help="1 to 63 of a-z, 0-9 and '-'.")],
    *,
    claim: Annotated[
        str | None, typer.Option(metavar="NAME", help="A PersistentVolumeClaim beside the sandboxes.")
    ] = None,
    image: Annotated[str | None, typer.Option(metavar="IMAGE", help="An OCI image or artifact.")] = None,
    folder: Annotated[str | None, typer.Option(metavar="PATH", help="A folder of every node.")] = None,
    owner: Annotated[
        list[str] | None, typer.Option(metavar="OWNER", help="Who may mount it; may be repeated. Without: everybody.")
    ] = None,
    json: Json = False,
) -> None:
    """Declare a data set, in the place of the one before (operators); sandboxes keep what they have mounted."""

    async def call(client: Client) -> DatasetRecord:
        return await client.set_dataset(name, claim=claim, image=image, folder=folder, owners=owner or ())

    _print(output.run(call, what=f"declaring the data set {name}", as_json=json), json=json)


@app.command()
def delete(name: Name, json: Json = False) -> None:
    """Take a data set back (operators): its files stay, and sandboxes keep what they have mounted."""
    removed = output.run(lambda client: client.remove_dataset(name), what="removing the data set", as_json=json)
    if json:
        output.data({"name": name, "removed": removed})
    elif removed:
        typer.echo(name)
    else:
        output.message(f"there was no data set {name}")


def _print(found: DatasetRecord, *, json: bool) -> None:
    if json:
        output.data(found.to_json())
    else:
        output.table(_COLUMNS, [_row(found)], told=True)


def _row(one: DatasetRecord) -> tuple[str, ...]:
    return (one.name, one.source or "-", ", ".join(one.owners) or "everybody", one.trouble or "can be mounted")
