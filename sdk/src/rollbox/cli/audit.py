"""`rollbox audit`: which key has done what."""

from __future__ import annotations

import time
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from rollbox.cli import output
from rollbox.cli.options import Json, time_option

if TYPE_CHECKING:
    from rollbox.audit import AuditEntry, AuditList
    from rollbox.client import Client

_COLUMNS = ("at", "owner", "key", "address", "action", "about", "outcome", "request")
_YEAR_S = 366 * 86_400


def audit(
    *,
    since: Annotated[
        float | None, time_option("What came in so long a time, as 1h.", least_s=0, most_s=_YEAR_S)
    ] = None,
    owner: Annotated[str | None, typer.Option(metavar="OWNER", help="With keys of this owner.")] = None,
    key: Annotated[str | None, typer.Option(metavar="KEY-ID", help="With this key.")] = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="About this sandbox, pool, image, key, ...")] = None,
    request: Annotated[str | None, typer.Option(metavar="ID", help="Of this request.")] = None,
    most: Annotated[int, typer.Option(min=1, max=10_000, help="The newest so many.")] = 1_000,
    json: Json = False,
) -> None:
    """Show which key has changed or opened what (operators)."""
    after_ms = 0 if since is None else int((time.time() - since) * 1000)

    async def call(client: Client) -> AuditList:
        return await client.audit(after_ms=after_ms, owner=owner, key=key, name=name, request_id=request, most=most)

    output.shown(
        call,
        lambda entries: output.written(_COLUMNS, [_row(one) for one in entries], told=True),
        lambda entries: [asdict(one) for one in entries],
        what="reading audit entries",
        as_json=json,
    )


def _row(entry: AuditEntry) -> tuple[str, ...]:
    at = datetime.fromtimestamp(entry.at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    about = " ".join(entry.names[:3]) + (f" +{len(entry.names) - 3}" if len(entry.names) > 3 else "")
    outcome = f"{entry.status} {entry.code}".strip()
    return at, entry.owner, entry.key_id, entry.address, entry.action, about, outcome, entry.request_id
