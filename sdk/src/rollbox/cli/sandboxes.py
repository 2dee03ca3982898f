"""`rollbox create`, `ps` and `delete`."""

from __future__ import annotations

import json as encoder
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rollbox import labels as label_rules
from rollbox._problem import SandboxError
from rollbox.cli import output
from rollbox.cli.options import (
    POLICY_HELP,
    Json,
    Labels,
    ResourceArguments,
    Wait,
    WaitTimeout,
    Watch,
    policy_of,
    time_option,
    with_resources,
)
from rollbox.errors import InvalidArgument

if TYPE_CHECKING:
    from rollbox.client import Client
    from rollbox.gateway import Gateway
    from rollbox.record import DeleteReport, SandboxRecord

_COLUMNS = ("id", "state", "image", "age", "expires in", "labels")
FilesGiven = Annotated[
    list[str] | None, typer.Option("--file", metavar="LOCAL:PATH", help="A local file to copy in; may be repeated.")
]


@with_resources
def create(
    image: Annotated[str | None, typer.Argument(help="Name of a container image.")] = None,
    *,
    checkpoint: Annotated[str | None, typer.Option(metavar="ID", help="Checkpoint, in place of an image.")] = None,
    resources: ResourceArguments,
    env: Annotated[list[str] | None, typer.Option("--env", "-e", metavar="KEY=VALUE", help="May be repeated.")] = None,
    file: FilesGiven = None,
    label: Labels = None,
    cwd: Annotated[str | None, typer.Option(help="Directory of every command.")] = None,
    user: Annotated[str | None, typer.Option(help="User of every command.")] = None,
    ttl: Annotated[float, time_option("Time to live: seconds, or 90s, 5m, 1h30m.")] = 3600,
    idle_timeout: Annotated[float | None, time_option("Time to live without being used.")] = None,
    egress: Annotated[str | None, typer.Option(metavar="POLICY", help=POLICY_HELP)] = None,
    start_timeout: Annotated[float, time_option("Time until it must be ready.")] = 120,
    json: Json = False,
) -> None:
    """Create a sandbox, print its id when it is ready, and leave it running."""

    async def call(client: Client) -> SandboxRecord:
        sandbox = await client.create(
            image,
            checkpoint=checkpoint,
            **resources.options(),
            env=label_rules.parse(env or ()),
            files=files_given(file or ()),
            cwd=cwd,
            user=user,
            labels=label_rules.parse(label or ()),
            ttl=ttl,
            idle_timeout=idle_timeout,
            lease=None,
            egress=None if egress is None else policy_of(egress),
            start_timeout=start_timeout,
        )
        return sandbox.record

    record = output.run(call, what=f"starting a sandbox of {checkpoint or image}", as_json=json)
    told = encoder.dumps(record.to_json(), indent=2) if json else record.id
    lost = f"sandbox {record.id} runs, and its id could not be printed"
    deleting = partial(output.run, lambda client: client.delete(record.id), what="deleting it again", as_json=json)
    output.made(told, lost, deleting)


def ps(
    *,
    ended: Annotated[bool, typer.Option("--all", "-a", help="Show ended ones too.")] = False,
    label: Labels = None,
    watch: Watch = False,
    json: Json = False,
) -> None:
    """List your sandboxes."""

    async def call(gateway: Gateway) -> list[SandboxRecord]:
        return await gateway.list(label_rules.parse(label or ()), ended=ended)

    records = output.shown(
        call,
        lambda records: output.written(_COLUMNS, _rows(records)),
        lambda records: [record.to_json() for record in records],
        what="listing sandboxes",
        as_json=json,
        watch=watch,
        on=output.run_on_gateway,
    )
    if not records and not json and output.on_terminal():
        output.message("no sandboxes; `rollbox create IMAGE` makes one, `rollbox ps --all` shows ended ones")


def delete(
    ids: Annotated[list[str] | None, typer.Argument(help="Ids of sandboxes.")] = None,
    label: Labels = None,
    wait: Wait = False,
    wait_timeout: WaitTimeout = None,
    json: Json = False,
) -> None:
    """Delete sandboxes by id, and all that have all the given labels; prints the ids that have ended."""

    async def call(client: Client) -> DeleteReport:
        labels = label_rules.parse(label or ())
        return await client.delete(*(ids or ()), labels=labels, wait=wait, wait_timeout=wait_timeout)

    report = output.run(call, what="deleting sandboxes", as_json=json)
    if json:
        output.data(report.to_json())
    else:
        for sandbox_id in report.deleted:
            typer.echo(sandbox_id)
    print_failures(report, as_json=json)


def print_failures(report: DeleteReport, *, as_json: bool) -> None:
    """Print all failures on stderr; the last one decides the exit code."""
    errors = [error for error in report.failed.values() if isinstance(error, SandboxError)]
    for error in errors[:-1]:
        output.message(f"error: {error.detail} ({error.code})", style="bold red")
    if errors:
        output.fail(errors[-1], as_json=as_json)


def files_given(pairs: Iterable[str]) -> dict[str, Path]:
    """Read `LOCAL:PATH`, the second of which is absolute.

    Raises:
        InvalidArgument: one is of another form, or two are for one path.
    """
    found: dict[str, Path] = {}
    for pair in pairs:
        local, separator, path = pair.partition(":/")
        if not local or not separator:
            raise InvalidArgument(f"{pair!r} is not of the form LOCAL:PATH, with an absolute path in the sandbox")
        if f"/{path}" in found:
            raise InvalidArgument(f"two files are given for /{path}: {str(found[f'/{path}'])!r} and {local!r}")
        found[f"/{path}"] = Path(local)
    return found


def _rows(records: list[SandboxRecord]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    now_ms = time.time() * 1000
    for record in sorted(records, key=lambda record: record.created_at_ms):
        state = f"{record.state} ({record.end.cause})" if record.end else record.state
        if record.draining_at_ms is not None:
            state = f"{state} (node drained)"
        if record.silent_since_ms is not None:
            state = f"{state} (no answer for {span((now_ms - record.silent_since_ms) / 1000)})"
        ends_ms = record.draining_at_ms or record.expires_at_ms
        left = "" if record.end else span((ends_ms - now_ms) / 1000)
        labels = ", ".join(f"{key}={value}" for key, value in record.labels.items())
        age = span((now_ms - record.created_at_ms) / 1000)
        rows.append((record.id, state, record.image, age, left, labels))
    return rows


def span(seconds: float) -> str:
    """Write a duration, seconds, in its largest whole unit."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds / size:.0f}{unit}"
    return f"{max(0.0, seconds):.0f}s"
