"""`rollbox up`: gateway and control plane on this machine, in one command."""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import Annotated

import typer

from rollbox.cli import output
from rollbox.errors import Unsupported

_MODULE = "controlplane"


def up(
    *,
    listen: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Address of the gateway.")] = None,
    plain_http: Annotated[
        bool, typer.Option("--plain-http", help="Let --listen be no loopback address: keys cross the network in clear.")
    ] = False,
    tls_listen: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="An address with TLS, beside the other one.")
    ] = None,
    tls_certificate: Annotated[
        str | None, typer.Option(metavar="FILE", help="PEM: its certificate and those that signed it.")
    ] = None,
    tls_key: Annotated[
        str | None, typer.Option(metavar="FILE", help="PEM: the certificate's key. Both are read anew on change.")
    ] = None,
    state_dir: Annotated[
        str | None, typer.Option(envvar="ROLLBOX_STATE_DIR", help="Folder for sockets, keys and client.json.")
    ] = None,
    engine: Annotated[str | None, typer.Option(metavar="URL", help="Docker Engine API, unix:///path.")] = None,
    starts_in_flight: Annotated[int | None, typer.Option(help="Sandboxes that may start at the same time.")] = None,
    max_sandboxes: Annotated[int | None, typer.Option(help="The most sandboxes at a time; 0 is no limit.")] = None,
    ports_domain: Annotated[
        str | None, typer.Option(metavar="DOMAIN", help="Ports of sandboxes have host names below it.")
    ] = None,
    egress: Annotated[
        bool, typer.Option(help="Let sandboxes reach what their policy allows; it is `offline` by default.")
    ] = True,
    dataset: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=FOLDER[,owners=A,B]", help="A folder that sandboxes may mount read only; may be repeated."
        ),
    ] = None,
    gpu_devices: Annotated[
        str | None, typer.Option(metavar="KIND", help="CDI kind of the devices for sandboxes with --gpu (docs/gpu.md).")
    ] = None,
    webhooks: Annotated[
        str | None, typer.Option(metavar="FILE", help="JSON list of endpoints that events are posted to.")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave sandboxes running at the end.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Start rollbox on this machine and serve until Ctrl-C; prints the address, the key and the isolation in force."""
    if importlib.util.find_spec(_MODULE) is None:
        detail = f"`rollbox up` needs the Python package {_MODULE}, which is not installed beside this one"
        hint = "Run it in a checkout after `make ready`, or set ROLLBOX_URL and ROLLBOX_API_KEY for one elsewhere."
        output.fail(Unsupported(detail, hint=hint), as_json=json)
    given: dict[str, str | int | None] = {"--listen": listen, "--state-dir": state_dir, "--engine": engine}
    given |= {"--starts-in-flight": starts_in_flight, "--max-sandboxes": max_sandboxes, "--ports-domain": ports_domain}
    given |= {"--gpu-devices": gpu_devices, "--tls-listen": tls_listen}
    given |= {"--tls-certificate": tls_certificate, "--tls-key": tls_key, "--webhooks": webhooks}
    options = [part for name, value in given.items() if value is not None for part in (name, str(value))]
    options += [part for one in dataset or () for part in ("--dataset", one)]
    wishes = {"--no-egress": not egress, "--plain-http": plain_http, "--keep": keep, "--json": json}
    flags = [name for name, wanted in wishes.items() if wanted]
    # Replaces this process, so that the server gets signals and sets the exit status itself, without a parent process.
    os.execv(sys.executable, [sys.executable, "-m", f"{_MODULE}.embedded", *options, *flags])  # noqa: S606
