"""`rollbox egress`: what a sandbox may reach, and switching that."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rollbox.cli import output
from rollbox.cli.options import POLICY_HELP, Json, policy_of

if TYPE_CHECKING:
    from rollbox.client import Client
    from rollbox.egress import EgressAttempt, EgressState

app = typer.Typer(help="Network policies: what a sandbox may reach, and switching that while it runs.")

SandboxId = Annotated[str, typer.Argument(metavar="ID", help="The sandbox.")]
_ATTEMPTS = ("at", "by", "host", "verdict", "rule", "address", "sent/received")
_RULES = ("", "rule", "host or network", "ports")


@app.command()
def show(sandbox_id: SandboxId, json: Json = False) -> None:
    """Show the network policy of a sandbox with its rules, and whether its last switch is in force."""

    async def call(client: Client) -> EgressState:
        return await (await client.connect(sandbox_id)).egress()

    _print(
        output.run(call, what=f"fetching the network policy of {sandbox_id}", as_json=json), as_json=json, rules=True
    )


@app.command("set")
def set_(
    sandbox_id: SandboxId,
    policy: Annotated[str, typer.Argument(metavar="POLICY", help=POLICY_HELP)],
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="How long the switch may take.")] = 10,
    json: Json = False,
) -> None:
    """Switch the network policy of a sandbox; returns when it is in force."""

    async def call(client: Client) -> EgressState:
        return await (await client.connect(sandbox_id)).egress(policy_of(policy), timeout=timeout)

    state = output.run(call, what=f"switching the network policy of {sandbox_id}", as_json=json)
    _print(state, as_json=json, rules=False)


@app.command("log")
def log(
    sandbox_id: SandboxId,
    denied: Annotated[bool, typer.Option("--denied", help="Only what was not allowed.")] = False,
    json: Json = False,
) -> None:
    """Show what programs in a sandbox tried to reach, oldest first, also after its end."""

    async def call(client: Client) -> list[EgressAttempt]:
        return await client.egress_log(sandbox_id)

    attempts = output.run(call, what=f"fetching the attempts of {sandbox_id}", as_json=json)
    shown = [one for one in attempts if not denied or one.verdict != "allowed"]
    if json:
        output.data([one.to_json() for one in shown])
    elif shown:
        output.table(_ATTEMPTS, [_attempt(one) for one in shown])
    else:
        output.message("no attempts")


def _attempt(one: EgressAttempt) -> tuple[str, ...]:
    at = time.strftime("%H:%M:%S", time.localtime(one.at_ms / 1000))
    host = f"{one.host}:{one.port}" + (f" x{one.count}" if one.count > 1 else "")
    moved = f"{one.sent_bytes}/{one.received_bytes}" if one.sent_bytes or one.received_bytes else ""
    return at, one.protocol, host, one.verdict, one.rule or one.policy, one.address, moved


def _print(state: EgressState, *, as_json: bool, rules: bool) -> None:
    if as_json:
        output.data(state.to_json())
        return
    applied = "in force" if state.applied else "not known to be in force yet"
    cut = f", {state.cut} open connections were closed" if state.cut else ""
    output.line(f"{state.policy}: {applied}{cut}; link {state.link}{_because(state.link_detail)}")
    if rules and (rows := _rows(state.rules)):
        output.table(_RULES, rows)


def _because(detail: str) -> str:
    return f" ({detail})" if detail else ""


def _rows(rules: dict[str, Any]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for side in ("deny", "allow"):
        for rule in rules.get(side, ()):
            ports = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in rule["ports"])
            rows.append((side, rule["id"], rule["host"] or rule["cidr"] or "", ports or "all"))
    return rows
