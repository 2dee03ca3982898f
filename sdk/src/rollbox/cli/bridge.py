"""`rollbox bridge`: servers of other platforms' protocols, for their published clients; a command for each protocol."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, NoReturn, TypeAlias

import typer

from rollbox.cli import output
from rollbox.cli.options import time_option
from rollbox.errors import Unsupported

app = typer.Typer(help="Serve another platform's protocol for its published clients.", no_args_is_help=True)

_MODULE = "rollbox_bridges"
_Value: TypeAlias = str | int | float | bool | Sequence[str] | None

Listen = Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Address of the bridge; port 0: any.")]
Url = Annotated[str | None, typer.Option(help="Address of the gateway; else that of the other commands.")]
Keys = Annotated[
    str | None, typer.Option(metavar="FILE", help="TOML: a client's key = the owner's key. Else they are the same.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
def e2b(
    *,
    listen: Listen = None,
    url: Url = None,
    domain: Annotated[
        str | None, typer.Option(help="Ports of sandboxes are {port}-{id} below it; else below localhost.")
    ] = None,
    image: Annotated[str | None, typer.Option(help="Image of the templates base and code-interpreter-v1.")] = None,
    template: Annotated[
        list[str] | None, typer.Option(metavar="NAME=IMAGE", help="A template; may be repeated.")
    ] = None,
    image_key: Annotated[str | None, typer.Option(help="The key of metadata that names the image.")] = None,
    keys: Keys = None,
    egress: Annotated[
        str | None, typer.Option(metavar="PRESET", help="Network of sandboxes whose client allows the Internet.")
    ] = None,
    private_ports: Annotated[
        bool, typer.Option("--private-ports", help="Ports of sandboxes need their credential.")
    ] = False,
    secret_file: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Seals credentials; else $ROLLBOX_BRIDGE_SECRET, else they end with it."),
    ] = None,
    json: Json = False,
) -> None:
    """Serve E2B's protocol until Ctrl-C; prints what to export for its clients."""
    given: dict[str, _Value] = {"--listen": listen, "--url": url, "--domain": domain, "--image": image}
    given |= {"--template": template, "--image-key": image_key, "--keys": keys, "--egress": egress}
    _serve("e2b", {**given, "--private-ports": private_ports, "--secret-file": secret_file, "--json": json})


@app.command()
def fusion(
    *,
    listen: Listen = None,
    url: Url = None,
    keys: Keys = None,
    keyless: Annotated[
        bool, typer.Option("--keyless", help="Requests without a key are for the owner of the bridge's own key.")
    ] = False,
    image: Annotated[str | None, typer.Option(help="Image of all languages that have none of their own.")] = None,
    language: Annotated[
        list[str] | None, typer.Option(metavar="NAME=IMAGE", help="A language's image; may be repeated.")
    ] = None,
    memory: Annotated[str | None, typer.Option(metavar="SIZE", help="Of sandboxes whose request has no limit.")] = None,
    egress: Annotated[
        str | None, typer.Option(metavar="PRESET", help="Network of the sandboxes; else the installation's default.")
    ] = None,
    warm: Annotated[
        int | None, typer.Option(metavar="N", help="Sandboxes kept ready for each image and memory in use; 4.")
    ] = None,
    at_once: Annotated[int | None, typer.Option(metavar="N", help="Requests that run at a time; 64.")] = None,
    waiting: Annotated[
        int | None, typer.Option(metavar="N", help="Requests more that wait for their turn; 1000.")
    ] = None,
    json: Json = False,
) -> None:
    """Serve SandboxFusion's protocol until Ctrl-C; prints what to export for its clients."""
    given: dict[str, _Value] = {"--listen": listen, "--url": url, "--keys": keys, "--keyless": keyless}
    given |= {"--image": image, "--language": language, "--memory": memory, "--egress": egress, "--warm": warm}
    _serve("fusion", {**given, "--at-once": at_once, "--waiting": waiting, "--json": json})


@app.command()
def docker(
    *,
    socket: Annotated[
        str | None, typer.Option(metavar="PATH", help="The Unix socket; else a default one, for this user alone.")
    ] = None,
    url: Url = None,
    egress: Annotated[
        str | None, typer.Option(metavar="PRESET", help="Network of containers on Docker's default network.")
    ] = None,
    ttl: Annotated[
        float | None, time_option("A container ends after it: seconds, or 90s, 5m, 1h30m; else 24h.")
    ] = None,
    lease: Annotated[
        float | None, time_option("So long containers outlive a bridge that was killed; else 60s.")
    ] = None,
    leave_out: Annotated[
        list[str] | None,
        typer.Option(metavar="FIELD", help="Leave a field of HostConfig out, with a warning; else it is refused."),
    ] = None,
    json: Json = False,
) -> None:
    """Serve the Docker Engine API until Ctrl-C, then remove its containers; prints what to export for its clients."""
    given: dict[str, _Value] = {"--socket": socket, "--url": url, "--egress": egress, "--ttl": ttl, "--lease": lease}
    _serve("docker", {**given, "--leave-out": leave_out, "--json": json})


def _serve(protocol: str, given: Mapping[str, _Value]) -> NoReturn:
    """Become the bridge of a protocol, as `rollbox up` becomes its program."""
    if importlib.util.find_spec(_MODULE) is None:
        detail = f"`rollbox bridge` needs the Python package {_MODULE}, which is not installed beside this one"
        hint = "Install rollbox-bridges, or run it in a checkout."
        output.fail(Unsupported(detail, hint=hint), as_json=bool(given.get("--json")))
    words = [word for name, value in given.items() for word in _words(name, value)]
    os.execv(sys.executable, [sys.executable, "-m", f"{_MODULE}.{protocol}", *words])  # noqa: S606


def _words(name: str, value: _Value) -> list[str]:
    """An option as words of a command line; none where it is not given."""
    if value is None or value is False:
        return []
    if value is True:
        return [name]
    if isinstance(value, str | int | float):
        return [name, str(value)]
    return [word for one in value for word in (name, one)]
