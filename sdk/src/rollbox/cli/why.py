"""`rollbox why`: of a sandbox, and of all of a run."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rollbox.cli import output
from rollbox.cli.attempts import REACHED, Met, beside, commands_of, table
from rollbox.cli.options import Json
from rollbox.cli.sandboxes import span
from rollbox.errors import InvalidArgument, NotFound, Unsupported

if TYPE_CHECKING:
    from rollbox.client import Client
    from rollbox.gateway import Gateway
    from rollbox.record import SandboxRecord
    from rollbox.timeline import Timeline

# Of what was not reached, the newest are shown.
_REFUSED = 10
_FAULTS = {
    "caller": "the caller's: its owner, or the program that used it",
    "workload": "the workload's: the code in the sandbox",
    "capacity": "a lack of capacity: there was no room",
    "platform": "the platform's",
}


def why(
    sandbox_id: Annotated[str | None, typer.Argument(metavar="[ID]", help="A sandbox.")] = None,
    run: Annotated[
        str | None, typer.Option(metavar="NAME", help="In place of a sandbox: those with the label rollbox.run=NAME.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --run: write the report as a page with plots, too.")
    ] = None,
    json: Json = False,
) -> None:
    """Show the timeline of a sandbox: why it ended, whose fault that was, and what to do. With --run, show where the
    wall time of a run went.
    """
    if (sandbox_id is None) == (run is None) or (html and not run):
        asked = InvalidArgument(
            "name one sandbox, or a run: `rollbox why ID` or `rollbox why --run NAME [--html FILE]`"
        )
        output.fail(asked, as_json=json)
    if run is not None:
        _run(run, html, as_json=json)
    elif sandbox_id is not None:
        _sandbox(sandbox_id, as_json=json)


def _run(name: str, html: Path | None, *, as_json: bool) -> None:
    from rollbox.recording.current import RUN_LABEL
    from rollbox.report.of_records import of_records

    async def call(gateway: Gateway) -> list[SandboxRecord]:
        found = await gateway.list({RUN_LABEL: name}, ended=True)
        if not found:
            hint = f"`Run({name!r})` of the SDK labels what it creates; ended sandboxes are known for 24 hours."
            raise NotFound(f"there is no sandbox with the label {RUN_LABEL}={name}", hint=hint)
        return found

    records = output.run_on_gateway(call, what=f"fetching the sandboxes of run {name}", as_json=as_json)
    report = of_records(name, records, time.time() * 1000)
    if html is not None:
        output.written_file(html, report.html(), as_json=as_json)
    if as_json:
        output.data(report.to_json())
    else:
        output.line(report.text().rstrip("\n"), indent="    ")


def _sandbox(sandbox_id: str, *, as_json: bool) -> None:
    async def call(client: Client) -> tuple[Timeline, list[Met]]:
        return await client.timeline(sandbox_id), await _refused(client, sandbox_id)

    timeline, refused = output.run(call, what=f"fetching the timeline of {sandbox_id}", as_json=as_json)
    if as_json:
        output.data({**timeline.to_json(), "refused": [one.to_json() for one in refused]})
        return
    for told in _story(timeline):
        output.line(told, indent="  ")
    typer.echo()
    output.table(
        ("when", "after", "state", "what"), [_row(timeline, at) for at in range(len(timeline.moments))], told=True
    )
    if timeline.timings_ms:
        phases = ", ".join(f"{name} {took / 1000:.3f} s" for name, took in timeline.timings_ms.items())
        output.line(f"\nstart: {phases}", indent="  ")
    if refused:
        more = f"; all {len(refused)}: rollbox egress log {sandbox_id} --denied" if len(refused) > _REFUSED else ""
        output.line(f"\nnot reached through the network, the newest{more}", indent="  ")
        output.table(*table(refused[-_REFUSED:]))


async def _refused(client: Client, sandbox_id: str) -> list[Met]:
    """Return what its programs did not reach; nothing where egress is not installed."""
    try:
        attempts = await client.egress_log(sandbox_id)
    except Unsupported:
        return []
    refused = [one for one in attempts if one.verdict not in REACHED]
    return beside(refused, await commands_of(client, sandbox_id) if refused else None)


def _story(timeline: Timeline) -> list[str]:
    story, parent = _own_story(timeline), timeline.parent
    if parent is not None:
        place = f"{parent.depth} deep" if parent.depth > 1 else "the first one"
        story.insert(1, f"started from: checkpoint {parent.checkpoint} of {parent.sandbox}, {place}")
    return story


def _own_story(timeline: Timeline) -> list[str]:
    end = timeline.end
    if end is None:
        lease = "it ends soon after its client has gone" if timeline.lease else "it outlives its client"
        idle = (
            f"when idle for {span(timeline.idle_timeout_ms / 1000)}" if timeline.idle_timeout_ms else "never when idle"
        )
        at_ms = timeline.expires_at_ms if timeline.draining_at_ms is None else timeline.draining_at_ms
        drained = "" if timeline.draining_at_ms is None else ", since its node is drained"
        return [
            f"{timeline.id}: {timeline.state}, {timeline.image}",
            timeline.summary,
            f"ends: {_clock(at_ms)} at the latest{drained}; {idle}; {lease}",
            *([f"has set aside {timeline.requests}"] if timeline.requests else []),
        ]
    return [
        f"{timeline.id}: {timeline.state}, {timeline.image}",
        timeline.summary,
        f"cause: {end.cause}, by {end.by}, {_clock(end.at_ms)}",
        f"fault: {_FAULTS.get(end.fault, end.fault)}",
        f"sample: {'mask it: this says nothing about it' if end.mask_sample else 'score it: this is its own doing'}",
        *([f"what to do: {timeline.advice}"] if timeline.advice else []),
    ]


def _row(timeline: Timeline, at: int) -> tuple[str, ...]:
    moment = timeline.moments[at]
    after = f"+{moment.after_ms / 1000:.3f} s" if moment.after_ms < 60_000 else f"+{span(moment.after_ms / 1000)}"
    return (_clock(moment.at_ms), after if at else "", moment.state, moment.text)


def _clock(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + "Z"
