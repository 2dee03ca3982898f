"""`rollbox expose` and `unexpose`: the addresses of a port of a sandbox, and whether it is public."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rollbox.cli import output
from rollbox.cli.options import Json

if TYPE_CHECKING:
    from rollbox.client import Client
    from rollbox.ports import Exposed

SandboxId = Annotated[str, typer.Argument(metavar="ID", help="The sandbox.")]
Port = Annotated[int, typer.Argument(metavar="PORT", help="A port of the sandbox; nothing needs to listen yet.")]


def expose(
    sandbox_id: SandboxId,
    port: Port,
    *,
    public: Annotated[
        bool, typer.Option("--public", help="Let anyone reach it, until `unexpose` or the sandbox's end.")
    ] = False,
    json: Json = False,
) -> None:
    """Print the addresses of a port. Without --public every request needs the headers that --json shows, and a public
    port becomes private again.
    """

    async def call(client: Client) -> Exposed:
        return await (await client.connect(sandbox_id)).ports.expose(port, public)

    _print(output.run(call, what=f"exposing port {port} of {sandbox_id}", as_json=json), port, as_json=json)


def unexpose(sandbox_id: SandboxId, port: Port, json: Json = False) -> None:
    """Make a public port private again; open connections go on. A port that is private already is a success."""

    async def call(client: Client) -> Exposed:
        return await (await client.connect(sandbox_id)).ports.close(port)

    _print(output.run(call, what=f"closing port {port} of {sandbox_id}", as_json=json), port, as_json=json)


def _print(exposed: Exposed, port: int, *, as_json: bool) -> None:
    if as_json:
        output.data({"port": port, **exposed.to_json()})
        return
    typer.echo(exposed.url)
    if exposed.host_url is not None:
        typer.echo(exposed.host_url)
    if not exposed.public:
        output.message("private: a request needs the headers that --json shows, a credential of the whole sandbox")
