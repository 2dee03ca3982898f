"""`rollbox logs`: a sandbox's commands, and the platform's words about it, in the order of time."""

from __future__ import annotations

import json as encoder
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rollbox._problem import SandboxError
from rollbox.cli import output
from rollbox.cli.options import Json

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rollbox.client import Client
    from rollbox.process import ExecSummary, OutputStream, Processes
    from rollbox.timeline import Timeline

_FOLLOW_S = 2.0
# More than that of each command is for `rollbox attach`.
_MOST_BYTES = 2**16


@dataclass(frozen=True, slots=True)
class Entry:
    """One line.

    Attributes:
        at_ms: Unix time.
        by: "platform" or "command".
        key: the same for what was printed before.
        text: for people.
        told: the rest of it, for `--json`.
    """

    at_ms: int
    by: str
    key: tuple[str, ...]
    text: str
    told: dict[str, Any] = field(default_factory=dict)


def logs(
    sandbox_id: Annotated[str, typer.Argument(metavar="ID", help="A sandbox.")],
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the sandbox ends.")] = False,
    said: Annotated[
        int | None,
        typer.Option("--output", "-o", metavar="BYTES", max=_MOST_BYTES, min=1, help="Also the last BYTES of outputs."),
    ] = None,
    json: Json = False,
) -> None:
    """Show what the platform did with a sandbox and which commands ran in it, oldest first. Commands are known as long
    as the sandbox runs; `rollbox attach ID EXEC` shows all that is kept of the output of one.
    """

    async def call(client: Client) -> Timeline:
        import asyncio

        printed: set[tuple[str, ...]] = set()
        while True:
            timeline = await client.timeline(sandbox_id)
            commands, processes = await _commands(client, timeline)
            for entry in entries(timeline, commands):
                if entry.key not in printed:
                    printed.add(entry.key)
                    last = await _last(processes, commands, entry, said) if said and processes else {}
                    _print(entry, last, as_json=json)
            if not follow or timeline.end is not None:
                return timeline
            await asyncio.sleep(_FOLLOW_S)

    timeline = output.run(call, what=f"fetching the log of {sandbox_id}", as_json=json, quiet=True)
    if timeline.end is not None and not follow:
        output.message("it has ended: which commands ran in it is not known any more")


def entries(timeline: Timeline, commands: Sequence[ExecSummary]) -> list[Entry]:
    """Put the platform's words and the commands, which come newest first, into the order of time; pure."""
    found = [
        Entry(
            one.at_ms,
            "platform",
            ("platform", str(place)),
            f"{one.state}: {one.text}",
            {"state": one.state, "text": one.text},
        )
        for place, one in enumerate(timeline.moments)
    ]
    found += [
        Entry(one.started_at_ms, "command", (one.exec_id, str(one.end)), _command(one), one.to_json())
        for one in reversed(commands)
    ]
    return sorted(found, key=lambda entry: entry.at_ms)


def _command(one: ExecSummary) -> str:
    code = "" if one.exit_code is None else f" {one.exit_code}"
    how = "runs" if one.running else f"{one.end}{code}"
    wrote = f"{one.stdout_bytes} bytes of stdout, {one.stderr_bytes} of stderr"
    return f"{how}: {' '.join(one.argv)}  ({one.exec_id}; {wrote})"


async def _commands(client: Client, timeline: Timeline) -> tuple[Sequence[ExecSummary], Processes | None]:
    """Return its commands and what attaches to them; none where it does not run, or stops while it is asked."""
    if timeline.state != "running":
        return (), None
    try:
        processes = (await client.connect(timeline.id)).processes
        return await processes.list(), processes
    except SandboxError as error:
        if (await client.get(timeline.id)).state == "running":
            raise
        output.message(f"its commands are not known any more: {error.detail}")
        return (), None


async def _last(
    processes: Processes, commands: Sequence[ExecSummary], entry: Entry, most_bytes: int
) -> dict[str, bytes]:
    """Return the last bytes of the outputs of an entry's command, as far as it wrote them before it was listed."""
    import asyncio

    one = next((one for one in commands if one.exec_id == entry.key[0]), None)
    if one is None:
        return {}
    begins = {name: max(0, getattr(one, f"{name}_bytes") - most_bytes) for name in ("stdout", "stderr")}
    attached = await processes.attach(one.exec_id, stdout_offset=begins["stdout"], stderr_offset=begins["stderr"])
    async with attached as process, asyncio.TaskGroup() as group:
        process.detach()
        stdout = group.create_task(_until(process.stdout, one.stdout_bytes))
        stderr = group.create_task(_until(process.stderr, one.stderr_bytes))
    return {name: data for name, data in (("stdout", stdout.result()), ("stderr", stderr.result())) if data}


async def _until(stream: OutputStream, total_bytes: int) -> bytes:
    parts = []
    while stream.offset < total_bytes and (data := await stream.next_bytes()):
        parts.append(data)
    return b"".join(parts)


def _print(entry: Entry, last: dict[str, bytes], *, as_json: bool) -> None:
    said = {name: data.decode("utf-8", "replace") for name, data in last.items()}
    if as_json:
        typer.echo(encoder.dumps({"at_ms": entry.at_ms, "by": entry.by, **entry.told, **said}))
        return
    output.line(f"{_clock(entry.at_ms)}  {entry.by:<8}  {entry.text}", indent="    ")
    for line in _indented(said):
        output.line(line)


def _indented(said: dict[str, str]) -> Iterator[str]:
    for name, text in said.items():
        yield from (f"    {name}  {line}" for line in text.splitlines())


def _clock(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + "Z"
