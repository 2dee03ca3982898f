"""`rollbox group`: list, show and delete the sandboxes of the samples of one prompt."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from rollbox import labels as label_rules
from rollbox.cli import output
from rollbox.cli.options import Json, Labels, Wait, WaitTimeout, Watch
from rollbox.cli.sandboxes import print_failures, span
from rollbox.errors import NotFound

if TYPE_CHECKING:
    from rollbox.client import Client
    from rollbox.record import DeleteReport, SandboxRecord

app = typer.Typer(help="Groups of sandboxes, one for each sample, that were made by one call.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="A group.")]
_COLUMNS = ("group", "sandboxes", "states", "image", "age")
_MEMBER_COLUMNS = ("sample", "id", "state", "source", "age", "expires in", "why it ended")


@app.command("list")
def list_(
    *,
    ended: Annotated[bool, typer.Option("--all", "-a", help="Count ended ones too.")] = False,
    label: Labels = None,
    watch: Watch = False,
    json: Json = False,
) -> None:
    """List your groups, oldest first."""

    async def call(client: Client) -> dict[str, list[SandboxRecord]]:
        return _groups(await client.list(label_rules.parse(label or ()), all=ended))

    output.shown(
        call,
        lambda groups: output.written(_COLUMNS, [_row(name, records) for name, records in groups.items()]),
        lambda groups: [_summary(name, records) for name, records in groups.items()],
        what="listing groups",
        as_json=json,
        watch=watch,
    )


@app.command()
def show(name: Name, json: Json = False) -> None:
    """Show the samples of a group, in order: each one's sandbox and its state. Does not wait for starts."""
    from rollbox.group import GROUP_LABEL, checked_name

    async def call(client: Client) -> list[SandboxRecord]:
        records = await client.list({GROUP_LABEL: checked_name(name)}, all=True)
        if not records:
            raise NotFound(f"there is no group {name}; `rollbox group list --all` shows them")
        return _latest(records)

    members = output.run(call, what=f"fetching the group {name}", as_json=json)
    if json:
        output.data({"name": name, "members": [{"sample": _sample(one), "sandbox": one.to_json()} for one in members]})
    else:
        output.table(_MEMBER_COLUMNS, [_member_row(one) for one in members], told=True)


@app.command()
def delete(name: Name, wait: Wait = False, wait_timeout: WaitTimeout = None, json: Json = False) -> None:
    """Delete all sandboxes of a group; prints the ids that have ended. No such group is success."""
    from rollbox import request
    from rollbox.group import checked_name, delete_group

    async def call(client: Client) -> DeleteReport:
        wait_s = request.wait_s(wait, wait_timeout)
        return await delete_group(client.gateway, checked_name(name), wait_s=wait_s)

    report = output.run(call, what=f"deleting the group {name}", as_json=json)
    if json:
        output.data(report.to_json())
    else:
        for sandbox_id in report.deleted:
            typer.echo(sandbox_id)
        if not report.deleted and not report.failed:
            output.message(f"there was no sandbox of a group {name}")
    print_failures(report, as_json=json)


def _groups(records: Iterable[SandboxRecord]) -> dict[str, list[SandboxRecord]]:
    from rollbox.group import GROUP_LABEL

    groups: dict[str, list[SandboxRecord]] = {}
    for record in sorted(records, key=lambda one: one.created_at_ms):
        if name := record.labels.get(GROUP_LABEL):
            groups.setdefault(name, []).append(record)
    return groups


def _latest(records: Iterable[SandboxRecord]) -> list[SandboxRecord]:
    """The newest sandbox of each sample, in order of the samples."""
    in_order = sorted(records, key=lambda one: one.created_at_ms)
    latest = {_sample(one): one for one in in_order}
    return sorted(latest.values(), key=lambda one: (len(_sample(one)), _sample(one)))


def _sample(record: SandboxRecord) -> str:
    from rollbox.group import SAMPLE_LABEL

    return record.labels.get(SAMPLE_LABEL, "0")


def _summary(name: str, records: list[SandboxRecord]) -> dict[str, object]:
    return {
        "name": name,
        "sandboxes": len(records),
        "states": dict(Counter(record.state for record in records)),
        "images": sorted({record.image for record in records}),
        "created_at_ms": records[0].created_at_ms,
    }


def _row(name: str, records: list[SandboxRecord]) -> tuple[str, ...]:
    states = ", ".join(f"{count} {state}" for state, count in Counter(one.state for one in records).items())
    images = ", ".join(sorted({one.image for one in records}))
    return (name, str(len(records)), states, images, span(time.time() - records[0].created_at_ms / 1000))


def _member_row(record: SandboxRecord) -> tuple[str, ...]:
    now_ms = time.time() * 1000
    left = "" if record.end else span((record.expires_at_ms - now_ms) / 1000)
    why = f"{record.end.cause} ({record.end.fault}): {record.end.detail}" if record.end else ""
    age = span((now_ms - record.created_at_ms) / 1000)
    return (_sample(record), record.id, record.state, record.source, age, left, why)
