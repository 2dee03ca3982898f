"""`rollbox pool`: warm pools, which keep sandboxes ready for creates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from rollbox.cli import output
from rollbox.cli.options import Json, ResourceArguments, Watch, with_resources
from rollbox.errors import InvalidArgument

if TYPE_CHECKING:
    from rollbox.client import Client
    from rollbox.pool import Pool, PoolChanges, PoolOptions, Warm

app = typer.Typer(help="Sandboxes that are kept ready, so that a create takes milliseconds.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="A pool.")]
_COLUMNS = ("pool", "image", "ready", "starting", "wanted", "min", "max", "claims/min", "why")


@app.command("list")
def list_(watch: Watch = False, json: Json = False) -> None:
    """List all pools."""

    async def call(client: Client) -> list[Pool]:
        return await client.pools()

    output.shown(
        call,
        lambda pools: output.written(_COLUMNS, [_row(one) for one in pools], told=True),
        lambda pools: [one.to_json() for one in pools],
        what="listing pools",
        as_json=json,
        watch=watch,
    )


@app.command()
def show(name: Name, json: Json = False) -> None:
    """Show one pool: how many sandboxes it keeps, why so many, and why starts fail."""
    _print(output.run(lambda client: client.pool(name), what="fetching the pool", as_json=json), json=json)


@app.command("set")
@with_resources
def set_(
    name: Annotated[str, typer.Argument(help="1 to 63 of a-z, 0-9 and '-'.")],
    image: Annotated[
        str | None, typer.Argument(help="Its sandboxes' image; without it only sizes and rates change.")
    ] = None,
    *,
    warm: Annotated[
        str | None,
        typer.Option(metavar="N|MIN:MAX", help="How many are kept ready; between MIN and MAX by the claims."),
    ] = None,
    resources: ResourceArguments,
    starts_per_minute: Annotated[int | None, typer.Option(help="The most starts in any minute.")] = None,
    surge: Annotated[int | None, typer.Option(help="How many more while a template is replaced.")] = None,
    recording_of: Annotated[
        str | None,
        typer.Option(metavar="OWNER", help="Start from this owner's recorded copy of the image ('' for no longer)."),
    ] = None,
    interpreter: Annotated[
        str | None,
        typer.Option(
            metavar="python", help="Keep an interpreter running in each, for its first caller ('' for no longer)."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Declare a pool, or change one (operators). A new template rolls it: old ones serve until new ones are ready."""

    async def call(client: Client) -> Pool:
        if image is None:
            if resources != ResourceArguments():
                raise InvalidArgument("IMAGE is missing: a template is declared as a whole")
            return await client.change_pool(name, **_changes(warm, starts_per_minute, surge, recording_of, interpreter))
        if warm is None:
            raise InvalidArgument("--warm is missing: how many are to be kept ready, N or MIN:MAX")
        options: PoolOptions = {
            **resources.options(),
            "starts_per_minute": starts_per_minute,
            "surge": surge,
            "recording_of": recording_of,
            "interpreter": _interpreter(interpreter) or None,
        }
        return await client.set_pool(name, image, _warm(warm), **options)

    _print(output.run(call, what=f"declaring the pool {name}", as_json=json), json=json)


@app.command()
def drain(
    name: Name,
    *,
    undo: Annotated[bool, typer.Option("--undo", help="Fill it again.")] = False,
    json: Json = False,
) -> None:
    """Empty a pool and start none for it until that is undone (operators); claimed sandboxes go on."""
    changed = output.run(lambda client: client.change_pool(name, drain=not undo), what="draining", as_json=json)
    _print(changed, json=json)


@app.command()
def delete(name: Name, json: Json = False) -> None:
    """Delete a pool (operators): its unclaimed sandboxes end, claimed ones go on."""
    removed = output.run(lambda client: client.remove_pool(name), what="removing the pool", as_json=json)
    if json:
        output.data({"name": name, "removed": removed})
    elif removed:
        typer.echo(name)
    else:
        output.message(f"there was no pool {name}")


def _changes(
    warm: str | None,
    starts_per_minute: int | None,
    surge: int | None,
    recording_of: str | None,
    interpreter: str | None,
) -> PoolChanges:
    changes: PoolChanges = {}
    if warm is not None:
        changes["warm"] = _warm(warm)
    if starts_per_minute is not None:
        changes["starts_per_minute"] = starts_per_minute
    if surge is not None:
        changes["surge"] = surge
    if recording_of is not None:
        changes["recording_of"] = recording_of
    if interpreter is not None:
        changes["interpreter"] = _interpreter(interpreter)
    return changes


def _interpreter(text: str | None) -> Literal["python", ""]:
    match text:
        case "python":
            return "python"
        case None | "":
            return ""
    raise InvalidArgument(f"--interpreter {text!r}: only python can wait for its caller")


def _warm(text: str) -> Warm:
    parts = text.split(":")
    if not all(part.isascii() and part.isdigit() for part in parts) or len(parts) > 2:
        raise InvalidArgument(f"--warm {text!r} is not of the form N or MIN:MAX")
    numbers = [int(part) for part in parts]
    return numbers[0] if len(numbers) == 1 else (numbers[0], numbers[1])


def _print(pool: Pool, *, json: bool) -> None:
    if json:
        output.data(pool.to_json())
        return
    output.table(_COLUMNS, [_row(pool)], told=True)
    for failure in pool.failures:
        output.message(f"{failure.count} starts failed: {failure.code}: {failure.detail}", style="bold red")


def _row(pool: Pool) -> tuple[str, ...]:
    ready = f"{pool.ready} (+{pool.outdated} old)" if pool.outdated else str(pool.ready)
    numbers = (pool.starting, pool.wanted, pool.min_warm, pool.max_warm, pool.claimed_per_minute)
    return (pool.name, pool.image or "-", ready, *map(str, numbers), pool.why or pool.trouble)
