"""`rollbox doctor`: what works here, what does not, and what to do about it."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rollbox._problem import SandboxError
from rollbox.cli import output

if TYPE_CHECKING:
    from rollbox.client import Client

# Checks of this machine's engine belong to the server's package; an SDK without it still checks the gateway.
_EMBEDDED = "controlplane.embedded"
_CLUSTER = "controlplane.cluster.kubernetes.doctor.probe"
# Beside the name of a check; on a narrower terminal what was found is below it.
_LEAST = 24
_INDENT = "    "
DEFAULT_KUBECONFIG = Path.home() / ".kube" / "config"


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check.

    Attributes:
        name: what was checked.
        ok: whether it is as it should be.
        detail: what was found.
        fix: what to do when it is not ok.
        needed: whether rollbox cannot be used here without it.
    """

    name: str
    ok: bool
    detail: str
    fix: str = ""
    needed: bool = True


def doctor(
    cluster: Annotated[bool, typer.Option("--cluster", help="Check a Kubernetes cluster, not this machine.")] = False,
    kubeconfig: Annotated[Path | None, typer.Option(envvar="KUBECONFIG", help="The cluster's kubeconfig file.")] = None,
    runtime_class: Annotated[str, typer.Option(help="The RuntimeClass of sandboxes there.")] = "gvisor",
    image: Annotated[
        str,
        typer.Option(help="Of the sandboxes that it starts, with python3; before an install of a cluster: its image."),
    ] = "",
    reach: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="What sandboxes are to reach through egress, to try it.")
    ] = "",
    *,
    release: Annotated[
        str, typer.Option(metavar="NAME", help="With --cluster: the only release that is looked at, in place of all.")
    ] = "",
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check the connection and this machine, or a cluster; exits with 1 when something needed is missing."""
    import asyncio

    if release and not cluster:
        raise typer.BadParameter("it is a release on a cluster: give --cluster too", param_hint="--release")
    way = kubeconfig or DEFAULT_KUBECONFIG
    looking = _cluster_checks(way, runtime_class, image, reach, release) if cluster else _all_checks(image, reach)
    checks = asyncio.run(looking)
    healthy = all(check.ok for check in checks if check.needed)
    if json:
        output.data({"ok": healthy, "checks": [asdict(check) for check in checks]})
    else:
        _print(checks)
    raise typer.Exit(0 if healthy else 1)


async def _all_checks(image: str, reach: str) -> list[Check]:
    machine = await _machine_checks()
    # Without the server's package this is a client only, which needs nothing but the gateway.
    return [*machine, *await _gateway_checks(image, reach, needed=not machine or "ROLLBOX_URL" in os.environ)]


async def _machine_checks() -> list[Check]:
    try:
        probe = importlib.import_module(f"{_EMBEDDED}.probe")
        options = importlib.import_module(f"{_EMBEDDED}.options")
    except ImportError:
        return []
    given = os.environ.get("ROLLBOX_STATE_DIR")
    found: Iterable[Any] = await probe.probe(Path(given) if given else options.default_state_dir(os.environ))
    return _of_server(found)


def _of_server(found: Iterable[Any]) -> list[Check]:
    # A server's package of another version may not tell what is needed: then all is.
    return [Check(item.name, item.ok, item.detail, item.fix, getattr(item, "needed", True)) for item in found]


async def _cluster_checks(kubeconfig: Path, runtime_class: str, image: str, reach: str, release: str) -> list[Check]:
    try:
        probe = importlib.import_module(_CLUSTER)
    except ImportError as error:
        fix = "Install the server's package too (`rollbox`, not only its SDK), or run it where the chart's images are."
        return [Check("cluster", ok=False, detail=f"the checks of a cluster are not installed here: {error}", fix=fix)]
    found: Iterable[Any] = await probe.probe(kubeconfig, runtime_class, image, reach, release)
    return _of_server(found)


async def _gateway_checks(image: str, reach: str, *, needed: bool) -> list[Check]:
    from rollbox import settings
    from rollbox.client import Client
    from rollbox.retry import RetryPolicy

    try:
        found = settings.resolve()
    except SandboxError as error:
        return [Check("settings", ok=False, detail=error.detail, fix=error.hint, needed=needed)]
    checks = [Check("settings", ok=True, detail=f"{found.url} (from {found.source})")]
    try:
        async with Client(found.url, found.api_key, retries=RetryPolicy(tries=1)) as client:
            info = await client.info()
            told = ", ".join(
                f"{name} {_plain(info[name])}"
                for name in ("version", "backend", "isolation", "network")
                if name in info
            )
            checks.append(Check("gateway", ok=True, detail=told))
            programs = await _program_checks(client, image)
            return [*checks, *programs, *await _egress_checks(client, found.url, image, reach)]
    except SandboxError as error:
        return [*checks, Check("gateway", ok=False, detail=error.detail, fix=error.hint, needed=needed)]


async def _program_checks(client: Client, image: str) -> list[Check]:
    from rollbox import program_check

    found = await program_check.check(client, image) if image else []
    return [Check(f"{one.name} of a sandbox", one.ok, one.detail, one.fix, needed=False) for one in found]


async def _egress_checks(client: Client, url: str, image: str, reach: str) -> list[Check]:
    from rollbox import egress_check
    from rollbox.egress_check import tries

    try:
        probe = tries.place("allowed host", reach) if reach else None
    except ValueError as error:
        return [Check("egress", ok=False, detail=str(error), fix="Give --reach HOST:PORT.")]
    found = await egress_check.check(client, image, probe=probe, inside=tries.own("gateway", url))
    return [Check(f"egress: {one.name}" if one.name else "egress", one.ok, one.detail, one.fix) for one in found]


def _plain(value: object) -> str:
    return " ".join(str(part) for part in value.values()) if isinstance(value, dict) else str(value)


def _print(checks: list[Check]) -> None:
    """Print each check on a line with its fix below, wrapped to the terminal's width; the verdict comes last."""
    marks = ["ok" if check.ok else "missing" if check.needed else "absent" for check in checks]
    wide = max(len(check.name) for check in checks)
    for check, mark in zip(checks, marks, strict=True):
        _told(f"{mark:<7}  {check.name:<{wide}}  ", check.detail)
        if check.fix and not check.ok:
            _told(" " * (wide + 11), f"-> {check.fix}")
    missing = [check.name for check, mark in zip(checks, marks, strict=True) if mark == "missing"]
    verdict = f"not ready: {', '.join(missing)}" if missing else "ready: nothing that is needed is missing"
    output.line(f"\n{verdict}", indent=_INDENT)


def _told(head: str, text: str) -> None:
    columns = output.width()
    if columns is None or len(head) + _LEAST <= columns:
        output.line(head + text, indent=" " * len(head.lstrip()))
    else:
        output.line(
            "\n".join(filter(None, (head.rstrip(), f"{_INDENT}{text}"))), indent=_INDENT if head.strip() else ""
        )
