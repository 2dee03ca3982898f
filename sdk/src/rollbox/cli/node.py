"""`rollbox node`: the nodes that sandboxes may run on, and draining one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Final

import typer

from rollbox.cli import output
from rollbox.cli.options import Json, Watch
from rollbox.cli.sandboxes import span

if TYPE_CHECKING:
    from rollbox.client import Client
    from rollbox.node import Node

app = typer.Typer(help="Nodes that sandboxes may run on (operators).", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="A node.")]
_COLUMNS = ("node", "state", "sandboxes", "claimed", "warm", "starting", "drains until", "why")
_LOOK_EVERY_S: Final = 2.0


@app.command("list")
def list_(watch: Watch = False, json: Json = False) -> None:
    """List the nodes that sandboxes may run on: their state, what is there, and until when they are drained."""

    async def call(client: Client) -> list[Node]:
        return await client.nodes()

    output.shown(
        call,
        lambda nodes: output.written(_COLUMNS, [_row(one) for one in nodes], told=True),
        lambda nodes: [one.to_json() for one in nodes],
        what="listing nodes",
        as_json=json,
        watch=watch,
    )


@app.command()
def show(name: Name, json: Json = False) -> None:
    """Show one node."""
    _print(output.run(lambda client: client.node(name), what=f"fetching node {name}", as_json=json), json=json)


@app.command()
def drain(
    name: Name,
    *,
    deadline: Annotated[
        float | None,
        typer.Option(help="Seconds after which what is left there ends; without it, as long as sandboxes may live."),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Return only when no sandbox is left there.")] = False,
    json: Json = False,
) -> None:
    """Cordon a node and empty it: nothing new comes there, warm sandboxes end at once, claimed ones by themselves.

    A sandbox that is left at the deadline ends as `sandbox_evicted`, and its owner hears of it before.
    Repeat it to set another deadline. Afterwards `kubectl drain` finds nothing of rollbox there.
    """

    async def call(client: Client) -> Node:
        import asyncio

        node = await client.drain_node(name, deadline)
        while wait and node.sandboxes and node.drain is not None:
            await asyncio.sleep(_LOOK_EVERY_S)
            node = await client.node(name)
        return node

    node = output.run(call, what=f"draining node {name}", as_json=json)
    _print(node, json=json)
    if wait and node.sandboxes:
        output.message(f"{name} is not drained any more: {node.sandboxes} sandboxes are there")
        raise typer.Exit(1)


@app.command()
def undrain(name: Name, json: Json = False) -> None:
    """Take the drain of a node back, also in the middle: what has not ended lives on, and new sandboxes come there."""
    _print(
        output.run(lambda client: client.undrain_node(name), what=f"undraining node {name}", as_json=json), json=json
    )


def _print(node: Node, *, json: bool) -> None:
    if json:
        output.data(node.to_json())
    else:
        output.table(_COLUMNS, [_row(node)], told=True)


def _row(node: Node) -> tuple[str, ...]:
    there = str(node.sandboxes) if node.max_pods is None else f"{node.sandboxes} of {node.max_pods}"
    counts = (str(node.claimed), str(node.warm), str(node.starting))
    until = "-" if node.drain is None else f"in {span(node.drain.until_ms / 1000 - time.time())}"
    why = node.why if node.drain is None else f"{node.why} ({node.drain.by})"
    return (node.name, node.state, there, *counts, until, why or "-")
