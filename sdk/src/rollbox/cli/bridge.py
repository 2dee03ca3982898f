"""`rollbox bridge e2b`: a server of another platform's protocol, for its published clients."""

from __future__ import annotations

import importlib.util
import os
import sys
from enum import StrEnum
from typing import Annotated

import typer

from rollbox.cli import output
from rollbox.errors import Unsupported

_MODULE = "rollbox_bridges"


class Protocol(StrEnum):
    """Whose clients are served."""

    E2B = "e2b"


def bridge(
    protocol: Annotated[Protocol, typer.Argument(metavar="NAME", help="Whose clients are served: e2b.")],
    *,
    listen: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Address of the bridge; port 0: any.")] = None,
    url: Annotated[str | None, typer.Option(help="Address of the gateway; else that of the other commands.")] = None,
    domain: Annotated[
        str | None, typer.Option(help="Ports of sandboxes are {port}-{id} below it; else below localhost.")
    ] = None,
    image: Annotated[str | None, typer.Option(help="Image of the templates base and code-interpreter-v1.")] = None,
    template: Annotated[
        list[str] | None, typer.Option(metavar="NAME=IMAGE", help="A template; may be repeated.")
    ] = None,
    image_key: Annotated[str | None, typer.Option(help="The key of metadata that names the image.")] = None,
    keys: Annotated[
        str | None, typer.Option(metavar="FILE", help="TOML: a client's key = the owner's key. Else they are the same.")
    ] = None,
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
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Serve another platform's protocol for its published clients, until Ctrl-C; prints what to export for them."""
    if importlib.util.find_spec(_MODULE) is None:
        detail = f"`rollbox bridge` needs the Python package {_MODULE}, which is not installed beside this one"
        output.fail(Unsupported(detail, hint="Install rollbox-bridges, or run it in a checkout."), as_json=json)
    given = {"--listen": listen, "--url": url, "--domain": domain, "--image": image, "--image-key": image_key}
    given |= {"--keys": keys, "--egress": egress, "--secret-file": secret_file}
    options = [part for name, value in given.items() if value is not None for part in (name, value)]
    options += [part for one in template or () for part in ("--template", one)]
    flags = [name for name, wanted in (("--private-ports", private_ports), ("--json", json)) if wanted]
    # Replaces this process, as `rollbox up` does.
    os.execv(sys.executable, [sys.executable, "-m", f"{_MODULE}.{protocol.value}", *options, *flags])  # noqa: S606
