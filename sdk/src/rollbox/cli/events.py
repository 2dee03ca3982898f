"""`rollbox events`: what happens to sandboxes, as it happens."""

from __future__ import annotations

import json as encoder
import time
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from rollbox import labels as label_rules
from rollbox.cli import output
from rollbox.cli.options import Json, Labels, time_option
from rollbox.errors import InvalidArgument

if TYPE_CHECKING:
    from rollbox.client import Client
    from rollbox.events import DeadLetter, DeadLetterList, SandboxEvent

_DAY_S = 86_400
_COLUMNS = ("given up", "webhook", "why", "last answer", "attempts", "what", "happened")


def events(
    label: Labels = None,
    *,
    since: Annotated[
        float | None, time_option("Begin so long ago, as 10m; at most a day.", least_s=0, most_s=_DAY_S)
    ] = None,
    after: Annotated[str | None, typer.Option(metavar="CURSOR", help="Begin behind what was read last.")] = None,
    follow: Annotated[bool, typer.Option(help="Go on until Ctrl-C.")] = True,
    every_owner: Annotated[bool, typer.Option("--every-owner", help="Of all owners; for operators.")] = False,
    dead: Annotated[bool, typer.Option("--dead", help="What webhooks did not take; for operators.")] = False,
    json: Json = False,
) -> None:
    """Show what happens to sandboxes, as it happens. With --json, one object a line; `cursor` is for --after."""
    if dead:
        if label or after is not None or every_owner:
            output.fail(InvalidArgument("--dead goes with --since and --json alone"), as_json=json)
        _show_dead(since, as_json=json)
        return
    if since is not None and after is not None:
        output.fail(InvalidArgument("give --since or --after, and not both"), as_json=json)
    cursor = after if since is None else str(int((time.time() - since) * 1000))

    async def call(client: Client) -> None:
        from contextlib import aclosing

        told = client.events(cursor, labels=label_rules.parse(label or ()), follow=follow, every_owner=every_owner)
        async with aclosing(aiter(told)) as reading:
            async for event in reading:
                typer.echo(encoder.dumps(asdict(event))) if json else output.line(_text(event), indent="    ")

    output.run(call, what="reading the events", as_json=json, quiet=True)


def _show_dead(since: float | None, *, as_json: bool) -> None:
    after_ms = 0 if since is None else int((time.time() - since) * 1000)

    async def call(client: Client) -> DeadLetterList:
        return await client.dead_letters(after_ms=after_ms, most=1_000)

    output.shown(
        call,
        lambda letters: output.written(_COLUMNS, [_row(one) for one in letters], told=True),
        lambda letters: [asdict(one) for one in letters],
        what="reading dead letters",
        as_json=as_json,
    )


def _row(letter: DeadLetter) -> tuple[str, ...]:
    at, first, last = (
        datetime.fromtimestamp(one / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
        for one in (letter.at_ms, letter.from_ms, letter.to_ms)
    )
    one = letter.event
    what = f"{letter.events} events" if one is None else f"{one.sandbox_id} {one.kind}"
    happened = first if letter.from_ms == letter.to_ms else f"{first} to {last}"
    return at, letter.webhook, letter.why, letter.detail, str(letter.attempts), what, happened


def _text(event: SandboxEvent) -> str:
    at = datetime.fromtimestamp(event.at_ms / 1000, UTC).strftime("%H:%M:%S.%f")[:-3]
    ends = event.end is not None and event.kind == "end" and event.end.cause != "deleted"
    why = f": {event.end.detail}" if event.end is not None and ends else ""
    return f"{at}  {event.sandbox_id}  {event.state:<9}  {event.text}{why}"
