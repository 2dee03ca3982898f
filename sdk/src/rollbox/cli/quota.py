"""`rollbox quota` and `rollbox preflight`: limits, their use, waiting creates, and checks before a run."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from rollbox.cli import output
from rollbox.cli.options import Json, ResourceArguments, Watch, with_resources
from rollbox.cli.sandboxes import span
from rollbox.errors import InvalidArgument

if TYPE_CHECKING:
    from rollbox.client import Client
    from rollbox.quota import Preflight, Quota, QuotaLimits

app = typer.Typer(help="Quotas of owners. Without a command: your own quota, its use, and your waiting creates.")

Owner = Annotated[str, typer.Argument(help="An owner; '*' is for all owners without a quota of their own.")]
_NONE = "none"
_COLUMNS = ("owner", "declared for", "sandboxes", "cpu", "memory", "gpu", "starting", "waiting")


@app.callback(invoke_without_command=True)
def own(context: typer.Context, json: Json = False) -> None:
    """Show your own quota, its use, and your waiting creates."""
    if context.invoked_subcommand is not None:
        return
    quota = output.run(lambda client: client.quota(), what="fetching the quota", as_json=json)
    if json:
        output.data(quota.to_json())
        return
    output.table(_COLUMNS, [_row(quota)])
    if quota.max_sandboxes is not None:
        output.message(f"{quota.sandboxes_in_all} of at most {quota.max_sandboxes} sandboxes are in use here")
    _queue(quota)


@app.command("list")
def list_(watch: Watch = False, json: Json = False) -> None:
    """List all declared quotas (operators)."""

    async def call(client: Client) -> list[Quota]:
        return await client.quotas()

    output.shown(
        call,
        lambda quotas: output.written(_COLUMNS, [_row(one) for one in quotas]),
        lambda quotas: [one.to_json() for one in quotas],
        what="listing quotas",
        as_json=json,
        watch=watch,
    )


@app.command()
def show(owner: Owner, json: Json = False) -> None:
    """Show the quota that applies to one owner: yours, or as an operator another one's."""
    _print(output.run(lambda client: client.quota(owner), what="fetching the quota", as_json=json), json=json)


@app.command("set")
def set_(
    owner: Owner,
    *,
    sandboxes: Annotated[str | None, typer.Option(metavar="N|none", help="Sandboxes at one time.")] = None,
    cpu: Annotated[str | None, typer.Option(metavar="CORES|none", help="Cores, as requested: 64 or 500m.")] = None,
    memory: Annotated[str | None, typer.Option(metavar="SIZE|none", help="Memory, as requested: 256Gi.")] = None,
    gpu: Annotated[str | None, typer.Option(metavar="N|none", help="Whole devices; no sandbox gets one yet.")] = None,
    starting: Annotated[str | None, typer.Option(metavar="N|none", help="Sandboxes that are not ready yet.")] = None,
    commits: Annotated[
        str | None, typer.Option(metavar="SIZE|none", help="Images that are made of sandboxes: 100Gi.")
    ] = None,
    egress_connections: Annotated[
        str | None, typer.Option(metavar="N|none", help="Connections of all its sandboxes, at each egress replica.")
    ] = None,
    egress_connections_per_second: Annotated[
        str | None, typer.Option(metavar="N|none", help="New ones of all its sandboxes, at each egress replica.")
    ] = None,
    egress_bytes_per_second: Annotated[
        str | None, typer.Option(metavar="SIZE|none", help="Of all its sandboxes, at each egress replica: 10Mi.")
    ] = None,
    egress_daily_bytes: Annotated[
        str | None, typer.Option(metavar="SIZE|none", help="The same, since midnight UTC: 100Gi.")
    ] = None,
    json: Json = False,
) -> None:
    """Change limits of an owner (operators); omitted ones stay, `none` removes one. No sandbox ends."""

    async def call(client: Client) -> Quota:
        limits: QuotaLimits = {}
        numbers = {
            "sandboxes": sandboxes,
            "gpu": gpu,
            "starting": starting,
            "egress_connections": egress_connections,
            "egress_connections_per_second": egress_connections_per_second,
        }
        for name, given in numbers.items():
            if given is not None:
                limits[name] = None if given == _NONE else _number(name, given)  # type: ignore[literal-required]
        if cpu is not None:
            limits["cpu"] = None if cpu == _NONE else cpu
        sizes = {
            "memory": memory,
            "commits": commits,
            "egress_bytes_per_second": egress_bytes_per_second,
            "egress_daily_bytes": egress_daily_bytes,
        }
        for name, given in sizes.items():
            if given is not None:
                limits[name] = None if given == _NONE else given  # type: ignore[literal-required]
        return await client.set_quota(owner, **limits)

    quota = output.run(call, what=f"changing the quota of {owner}", as_json=json)
    _print(quota, json=json)
    over = [name for name, used in quota.used.items() if used > (quota.limits.get(name) or used)]
    if over:
        output.message(f"{owner} uses more {', '.join(over)} than that: no sandbox ends, no new one starts")


@app.command()
def remove(owner: Owner, json: Json = False) -> None:
    """Remove an owner's quota (operators); shows the quota that then applies."""
    quota = output.run(lambda client: client.remove_quota(owner), what=f"removing the quota of {owner}", as_json=json)
    _print(quota, json=json)


@with_resources
def preflight(
    image: Annotated[str, typer.Argument(help="Name of a container image.")],
    *,
    count: Annotated[int, typer.Option("--count", "-n", help="Sandboxes at the same time.")] = 1,
    resources: ResourceArguments,
    json: Json = False,
) -> None:
    """Check a run against quota, capacity, image and policies; starts nothing. Exit code 0 when it fits."""

    async def call(client: Client) -> Preflight:
        return await client.preflight(image, count, **resources.options())

    told = output.run(call, what="checking the run", as_json=json)
    if json:
        output.data(told.to_json())
    else:
        output.line(str(told))
        for hint in dict.fromkeys(one.hint for one in told.blockers if one.hint):
            output.message(f"hint: {hint}")
    if told.blockers:
        raise typer.Exit(output.EXIT_BY_FAULT[told.blockers[0].error().fault])


def _print(quota: Quota, *, json: bool) -> None:
    if json:
        output.data(quota.to_json())
    else:
        output.table(_COLUMNS, [_row(quota)])
        _queue(quota)


def _queue(quota: Quota) -> None:
    if quota.queue:
        output.table(("place", "waits for", "waited", "refused in", "about", "labels"), _places(quota))


def _row(quota: Quota) -> tuple[str, ...]:
    def part(name: str, size: float, unit: str = "") -> str:
        limit = quota.limits.get(name)
        used = quota.used.get(name, 0) / size
        told = output.plain(used)
        return f"{told}{unit}" if limit is None else f"{told} of {output.plain(limit / size)}{unit}"

    cells = (part("sandboxes", 1), part("cpu_millicores", 1000), part("memory_bytes", 1 << 30, "Gi"))
    more = (part("gpu", 1), part("starting", 1), str(quota.waiting))
    return (quota.owner, quota.declared_for or "-", *cells, *more)


def _places(quota: Quota) -> list[tuple[str, ...]]:
    now_ms = time.time() * 1000
    rows: list[tuple[str, ...]] = []
    for one in quota.queue:
        waited, left = span((now_ms - one.since_ms) / 1000), span((one.until_ms - now_ms) / 1000)
        about = "?" if one.estimate_ms is None else span(one.estimate_ms / 1000)
        labels = ", ".join(f"{key}={value}" for key, value in one.labels.items())
        rows.append((str(one.position), one.why or one.waits_for, waited, left, about, labels))
    return rows


def _number(name: str, given: str) -> int:
    if not (given.isascii() and given.isdigit()):
        raise InvalidArgument(f"{name} {given!r} is neither a whole number nor {_NONE!r}")
    return int(given)
