"""`rollbox key`: API keys with scopes and an end, which are made, rotated and revoked while the platform runs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from rollbox.cli import output
from rollbox.cli.options import Json
from rollbox.cli.sandboxes import span
from rollbox.errors import InvalidArgument

if TYPE_CHECKING:
    from rollbox.api_key import ApiKey, NewApiKey, SharedKey
    from rollbox.client import Client

app = typer.Typer(help="API keys: what each allows and until when. A key's text is shown once.", no_args_is_help=True)

Key = Annotated[str, typer.Argument(metavar="KEY", help="The id or the name of a key.")]
Owner = Annotated[str | None, typer.Option(metavar="OWNER", help="Keys of another owner (operators).")]
_COLUMNS = ("key", "name", "scopes", "state", "expires", "used", "made", "made by")
_NEVER = "never"


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="For people: which program has it.")],
    *,
    scope: Annotated[
        list[str],
        typer.Option(
            metavar="SCOPE",
            help="read, run, images, egress, pools, keys or operator; may be repeated. Every key reads.",
        ),
    ],
    expires: Annotated[str, typer.Option(metavar="DURATION|never", help="How long it holds: 12h, 30d.")] = "90d",
    owner: Owner = None,
    json: Json = False,
) -> None:
    """Make a key and print it: it allows nothing that yours does not, and no longer."""

    async def call(client: Client) -> NewApiKey:
        return await client.create_key(name, scope, expires=None if expires == _NEVER else expires, owner=owner)

    _told(output.run(call, what=f"making the key {name}", as_json=json), json=json)


def share(
    sandbox_id: Annotated[str, typer.Argument(metavar="ID", help="The sandbox.")],
    ttl: Annotated[str, typer.Option(metavar="DURATION", help="How long the key holds: 90s, 10m, 12h.")] = "10m",
    json: Json = False,
) -> None:
    """Make a key that opens one sandbox alone and print it: for its commands, files and ports, and not for its end."""

    async def call(client: Client) -> SharedKey:
        return await (await client.connect(sandbox_id)).share(ttl)

    made = output.run(call, what=f"sharing {sandbox_id}", as_json=json)
    if json:
        output.data(made.to_json())
        return
    typer.echo(made.key)
    if output.on_terminal():
        left = span(made.expires_at_ms / 1000 - time.time())
        output.message(f"opens {sandbox_id} for {left}: ROLLBOX_API_KEY=... rollbox exec {sandbox_id}")


@app.command("list")
def list_(owner: Owner = None, json: Json = False) -> None:
    """List your keys, without their texts; those that have ended stay for 30 days."""
    found = output.run(lambda client: client.keys(owner), what="listing keys", as_json=json)
    if json:
        output.data([one.to_json() for one in found])
        return
    output.table(_COLUMNS, [_row(one) for one in found], told=True)
    if not found and output.on_terminal():
        output.message("no keys but those of the settings; `rollbox key create NAME --scope run` makes one")


@app.command()
def rotate(
    key: Key,
    *,
    grace: Annotated[
        str, typer.Option(metavar="DURATION", help="How long the text before holds too; 0 where it has leaked.")
    ] = "1h",
    owner: Owner = None,
    json: Json = False,
) -> None:
    """Give a key another text and print it; id, name, scopes and the length of its life stay."""

    async def call(client: Client) -> NewApiKey:
        return await client.rotate_key(await _id(client, key, owner), grace=grace)

    _told(output.run(call, what=f"rotating the key {key}", as_json=json), json=json)


@app.command()
def revoke(key: Key, *, owner: Owner = None, json: Json = False) -> None:
    """End a key: it is refused everywhere within a second. Tokens of sandboxes that it got hold until these end."""

    async def call(client: Client) -> ApiKey:
        return await client.revoke_key(await _id(client, key, owner))

    gone = output.run(call, what=f"revoking the key {key}", as_json=json)
    if json:
        output.data(gone.to_json())
    else:
        typer.echo(gone.id)


async def _id(client: Client, key: str, owner: str | None) -> str:
    """Find a key by its name; an id is taken as it is."""
    if key.startswith("key-"):
        return key
    named = [one for one in await client.keys(owner) if one.name == key]
    valid = [one for one in named if one.state == "valid"] or named[-1:]
    if not valid:
        raise InvalidArgument(f"there is no key {key!r}; `rollbox key list` shows them")
    return valid[0].id


def _told(made: NewApiKey, *, json: bool) -> None:
    if json:
        output.data({**made.record.to_json(), "key": made.text})
        return
    typer.echo(made.text)
    left = "never" if made.record.expires_at_ms is None else f"in {_until(made.record.expires_at_ms)}"
    allows = ", ".join(made.record.scopes)
    output.message(f"{made.record.id} of {made.record.owner}: {allows}; it expires {left}. It is not shown again.")


def _row(one: ApiKey) -> tuple[str, ...]:
    expires = _NEVER if one.expires_at_ms is None else _until(one.expires_at_ms)
    used = "-" if one.used_at_ms is None else f"{_since(one.used_at_ms)} ago"
    made = f"{_since(one.made_at_ms)} ago"
    scopes = ", ".join(one.scopes)
    return (one.id, one.name, scopes, one.state, expires if one.state == "valid" else "-", used, made, one.made_by)


def _until(at_ms: int) -> str:
    return span(at_ms / 1000 - time.time())


def _since(at_ms: int) -> str:
    return span(time.time() - at_ms / 1000)
