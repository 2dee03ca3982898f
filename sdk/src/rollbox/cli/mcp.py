"""`rollbox mcp`: sandboxes as tools of MCP clients."""

from __future__ import annotations

from typing import Annotated

import typer

from rollbox.cli.other_program import Value, become


def mcp(
    *,
    url: Annotated[str | None, typer.Option(help="Address of the gateway; else that of the other commands.")] = None,
    image: Annotated[str | None, typer.Option(help="Image of sandboxes that are created without one.")] = None,
    egress: Annotated[
        list[str] | None,
        typer.Option(metavar="PRESET", help="What sandboxes may reach; may be repeated, the first is the default."),
    ] = None,
    max_sandboxes: Annotated[int | None, typer.Option(metavar="N", help="How many there may be at a time; 8.")] = None,
    max_ttl: Annotated[int | None, typer.Option(metavar="SECONDS", help="How long one may live; an hour.")] = None,
    public_ports: Annotated[
        bool, typer.Option("--public-ports", help="Have a tool that opens ports to everybody.")
    ] = False,
    listen: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Serve over HTTP on this machine; port 0: any.")
    ] = None,
    key_file: Annotated[
        str | None, typer.Option(metavar="FILE", help="The key of HTTP; else $ROLLBOX_MCP_KEY, else a new one.")
    ] = None,
    origin: Annotated[
        list[str] | None, typer.Option(metavar="URL", help="Of a page in a browser that may call; may be repeated.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print address and key of HTTP as JSON.")] = False,
) -> None:
    """Serve sandboxes as tools over MCP, on standard streams or by HTTP, until the client goes or Ctrl-C."""
    given: dict[str, Value] = {"--url": url, "--image": image, "--egress": egress, "--max-sandboxes": max_sandboxes}
    given |= {"--max-ttl": max_ttl, "--public-ports": public_ports, "--listen": listen, "--key-file": key_file}
    install = 'pip install "rollbox-integrations[mcp]"'
    become("mcp", "rollbox_integrations", "mcp", {**given, "--origin": origin, "--json": json}, install=install)
