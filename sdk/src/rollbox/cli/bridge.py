"""`rollbox bridge`: servers of other platforms' protocols, for their published clients; a command for each protocol."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, NoReturn

import typer

from rollbox.cli.options import time_option
from rollbox.cli.other_program import Value, become

app = typer.Typer(help="Serve another platform's protocol for its published clients.", no_args_is_help=True)


Listen = Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Address of the bridge; port 0: any.")]
Url = Annotated[str | None, typer.Option(help="Address of the gateway; else that of the other commands.")]
Keys = Annotated[
    str | None, typer.Option(metavar="FILE", help="TOML: a client's key = the owner's key. Else they are the same.")
]
SecretFile = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Seals credentials; else $ROLLBOX_BRIDGE_SECRET, else they end with it."),
]
TlsCertificate = Annotated[
    str | None,
    typer.Option("--tls-certificate", metavar="FILE", help="PEM: serve HTTPS, with it and those that signed it."),
]
TlsKey = Annotated[
    str | None,
    typer.Option("--tls-key", metavar="FILE", help="PEM: the key of the certificate. Both are read anew on change."),
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
    build_egress: Annotated[
        str | None, typer.Option(metavar="PRESET", help="Network of builds of templates; else they have none.")
    ] = None,
    private_ports: Annotated[
        bool, typer.Option("--private-ports", help="Ports of sandboxes need their credential.")
    ] = False,
    secret_file: SecretFile = None,
    tls_certificate: TlsCertificate = None,
    tls_key: TlsKey = None,
    json: Json = False,
) -> None:
    """Serve E2B's protocol until Ctrl-C; prints what to export for its clients."""
    given: dict[str, Value] = {"--listen": listen, "--url": url, "--domain": domain, "--image": image}
    given |= {"--template": template, "--image-key": image_key, "--keys": keys, "--egress": egress}
    given |= {"--build-egress": build_egress, "--tls-certificate": tls_certificate, "--tls-key": tls_key}
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
    tls_certificate: TlsCertificate = None,
    tls_key: TlsKey = None,
    json: Json = False,
) -> None:
    """Serve SandboxFusion's protocol until Ctrl-C; prints what to export for its clients."""
    given: dict[str, Value] = {"--listen": listen, "--url": url, "--keys": keys, "--keyless": keyless}
    given |= {"--image": image, "--language": language, "--memory": memory, "--egress": egress, "--warm": warm}
    given |= {"--tls-certificate": tls_certificate, "--tls-key": tls_key}
    _serve("fusion", {**given, "--at-once": at_once, "--waiting": waiting, "--json": json})


@app.command()
def prime(
    *,
    listen: Listen = None,
    url: Url = None,
    public_url: Annotated[
        str | None, typer.Option(metavar="URL", help="Where clients reach the bridge; else where a request came to.")
    ] = None,
    image: Annotated[
        list[str] | None, typer.Option(metavar="NAME=IMAGE", help="What a docker_image is; may be repeated.")
    ] = None,
    keys: Keys = None,
    egress: Annotated[
        str | None, typer.Option(metavar="PRESET", help="Network of sandboxes whose client gives no list.")
    ] = None,
    arch: Annotated[
        str | None, typer.Option(help="Of the nodes; another one is asked for by the node's label.")
    ] = None,
    region_label: Annotated[
        str | None, typer.Option(metavar="KEY", help="Label of nodes that is their region.")
    ] = None,
    gpu_label: Annotated[
        str | None, typer.Option(metavar="KEY", help="Label of nodes that is the type of their GPUs.")
    ] = None,
    secret_file: SecretFile = None,
    tls_certificate: TlsCertificate = None,
    tls_key: TlsKey = None,
    json: Json = False,
) -> None:
    """Serve the protocol of Prime Sandboxes until Ctrl-C; prints what to export for its clients."""
    given: dict[str, Value] = {"--listen": listen, "--url": url, "--public-url": public_url, "--keys": keys}
    given |= {"--image": image, "--tls-certificate": tls_certificate, "--tls-key": tls_key}
    given |= {"--egress": egress, "--arch": arch, "--region-label": region_label, "--gpu-label": gpu_label}
    _serve("prime", {**given, "--secret-file": secret_file, "--json": json})


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
    given: dict[str, Value] = {"--socket": socket, "--url": url, "--egress": egress, "--ttl": ttl, "--lease": lease}
    _serve("docker", {**given, "--leave-out": leave_out, "--json": json})


def _serve(protocol: str, given: Mapping[str, Value]) -> NoReturn:
    install = "Install rollbox-bridges, or run it in a checkout."
    become("bridge", "rollbox_bridges", protocol, given, install=install)
