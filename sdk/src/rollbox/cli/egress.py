"""`rollbox egress`: what a sandbox may reach, and switching that."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rollbox.cli import output
from rollbox.cli.attempts import Met, beside, commands_of, table
from rollbox.cli.options import POLICY_HELP, Json, policy_of, time_option
from rollbox.errors import InvalidArgument

if TYPE_CHECKING:
    from rollbox.client import Client
    from rollbox.egress import EgressPolicy, EgressPreset, EgressState

app = typer.Typer(help="Network policies: what a sandbox may reach, and switching that while it runs.")
presets = typer.Typer(help="Network policies with a name: the installation's, and your own.")
app.add_typer(presets, name="preset")

SandboxId = Annotated[str, typer.Argument(metavar="ID", help="The sandbox.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Of the preset.")]
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
    timeout: Annotated[float, time_option("How long the switch may take.")] = 10,
    until: Annotated[
        str, typer.Option(metavar="DATE", help="Packages as of this date (2024-06-01), from the package cache.")
    ] = "",
    json: Json = False,
) -> None:
    """Switch the network policy of a sandbox; returns when it is in force."""

    async def call(client: Client) -> EgressState:
        given = _dated(policy_of(policy), until) if until else policy_of(policy)
        return await (await client.connect(sandbox_id)).egress(given, timeout=timeout)

    state = output.run(call, what=f"switching the network policy of {sandbox_id}", as_json=json)
    _print(state, as_json=json, rules=False)


def _dated(given: str | EgressPolicy, until: str) -> EgressPolicy:
    from rollbox.egress import EgressPolicy

    return (
        EgressPolicy(mode="allow", include=[given], until=until)
        if isinstance(given, str)
        else replace(given, until=until)
    )


@app.command("log")
def log(
    sandbox_id: SandboxId,
    denied: Annotated[bool, typer.Option("--denied", help="Only what was not allowed.")] = False,
    json: Json = False,
) -> None:
    """Show what programs in a sandbox tried to reach, oldest first, also after its end; while it runs, beside the
    commands that ran at that time.
    """

    async def call(client: Client) -> list[Met]:
        found = [one for one in await client.egress_log(sandbox_id) if not denied or one.verdict != "allowed"]
        return beside(found, await commands_of(client, sandbox_id) if found else None)

    met = output.run(call, what=f"fetching the attempts of {sandbox_id}", as_json=json)
    if json:
        output.data([one.to_json() for one in met])
    elif met:
        output.table(*table(met))
    else:
        output.message(
            "no attempts on record; one that was offline since its birth tells itself what it refused, while it runs"
        )


@presets.command("list")
def list_(json: Json = False) -> None:
    """List the presets that you may ask for."""

    async def call(client: Client) -> list[EgressPreset]:
        return await client.egress_presets()

    told = output.run(call, what="listing egress presets", as_json=json)
    if json:
        output.data([one.to_json() for one in told])
        return
    rows: list[tuple[str, ...]] = [(one.name, one.source, one.policy.mode, _size(one)) for one in told]
    output.table(("name", "source", "mode", "rules"), rows)


@presets.command("show")
def show_preset(name: Name, json: Json = False) -> None:
    """Print a preset as JSON, as `set` takes it from a file."""
    told = output.run(lambda client: client.egress_preset(name), what=f"fetching the preset {name}", as_json=json)
    output.data(told.to_json() if json else told.policy.to_json())


@presets.command("set")
def set_preset(
    name: Name,
    policy: Annotated[str, typer.Argument(metavar="@FILE", help="A policy in JSON; @- reads stdin.")],
    json: Json = False,
) -> None:
    """Declare a preset of yours, in the place of the one before; sandboxes keep the rules that they got."""

    async def call(client: Client) -> EgressPreset:
        given = policy_of(policy)
        if isinstance(given, str):
            raise InvalidArgument(f"{given!r} is no policy: give @FILE with a policy in JSON")
        return await client.set_egress_preset(name, given)

    told = output.run(call, what=f"declaring the preset {name}", as_json=json)
    if json:
        output.data(told.to_json())
    else:
        output.line(f"{told.name}: mode {told.policy.mode}, {_size(told)} rules")


@presets.command("delete")
def delete_preset(name: Name, json: Json = False) -> None:
    """Remove a preset of yours; sandboxes that have it keep it. None of that name is a success."""
    told = output.run(
        lambda client: client.remove_egress_preset(name), what=f"removing the preset {name}", as_json=json
    )
    if json:
        output.data({"name": name, "removed": told})
    else:
        output.message(f"{name} was {'removed' if told else 'not there'}")


def _size(preset: EgressPreset) -> str:
    included = f" and {', '.join(preset.policy.include)}" if preset.policy.include else ""
    return f"{len(preset.policy.allow) + len(preset.policy.deny)}{included}"


def _print(state: EgressState, *, as_json: bool, rules: bool) -> None:
    if as_json:
        output.data(state.to_json())
        return
    applied = "in force" if state.applied else "not known to be in force yet"
    cut = f", {state.cut} open connections were closed" if state.cut else ""
    until = f", packages as of {state.rules['until']}" if state.rules.get("until") else ""
    output.line(f"{state.policy}: {applied}{until}{cut}; link {state.link}{_because(state.link_detail)}")
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
