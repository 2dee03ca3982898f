"""The command-line options of ``rollbox up``."""

import argparse
import ipaddress
import os
import re
import ssl
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

from pydantic import ValidationError

from controlplane.cluster.engine.mounts import folder_trouble
from controlplane.model.dataset import DatasetSpec
from controlplane.model.mounts import DATASET_NAME
from controlplane.settings import EXIT_CONFIG, Listen, rules, webhooks
from controlplane.webhooks import Endpoint

DEFAULT_LISTEN: Final = "127.0.0.1:7420"
# Every browser resolves names below it to this machine (RFC 6761 section 6.3).
DEFAULT_PORTS_DOMAIN: Final = "localhost"


@dataclass(frozen=True, slots=True)
class UpOptions:
    """The options; ``parser`` describes them."""

    listen: Listen
    plain_http: bool
    tls_listen: Listen | None
    tls_certificate: Path | None
    tls_key: Path | None
    state_dir: Path
    engine: str | None
    starts_in_flight: int
    max_sandboxes: int
    ports_domain: str
    egress: bool
    datasets: Mapping[str, DatasetSpec]
    gpu_devices: str
    webhooks: tuple[Endpoint, ...]
    keep: bool
    json: bool


class _Parser(argparse.ArgumentParser):
    """An argument parser that exits with ``EXIT_CONFIG``: a bad option has the same exit status as a bad variable."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(EXIT_CONFIG, f"{self.prog}: {message}\n")


class _Datasets(argparse.Action):
    """Takes data sets in by name, each once."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,  # noqa: ANN401 - argparse's
        option_string: str | None = None,
    ) -> None:
        """Adds one."""
        del option_string
        name, spec = values
        if name in namespace.datasets:
            parser.error(f"argument --dataset: {name} is given twice")
        namespace.datasets = {**namespace.datasets, name: spec}


def parser(environ: Mapping[str, str] = os.environ) -> argparse.ArgumentParser:
    """The command line of ``rollbox up``."""
    made = _Parser(prog="rollbox up", description="Run rollbox on this machine's container engine.")
    made.add_argument("--listen", default=DEFAULT_LISTEN, type=_listen, help="host:port of the one address")
    made.add_argument(
        "--plain-http",
        action="store_true",
        help="let --listen be another address than the loopback: keys cross it in clear",
    )
    made.add_argument("--tls-listen", type=_listen, help="host:port with TLS, beside the other one")
    made.add_argument("--tls-certificate", type=Path, help="PEM, with those that signed it; read anew on change")
    made.add_argument("--tls-key", type=Path, help="PEM: the key of the certificate")
    made.add_argument("--state-dir", default=default_state_dir(environ), type=_state_dir, help="sockets and keys")
    made.add_argument("--engine", help="unix:///path of a Docker Engine API; default: the first one found")
    made.add_argument("--starts-in-flight", default=4, type=_positive, help="how many sandboxes start at once")
    made.add_argument("--max-sandboxes", default=0, type=_natural, help="0: no limit")
    made.add_argument(
        "--ports-domain",
        default=DEFAULT_PORTS_DOMAIN,
        type=_domain,
        help="sandboxes' ports are served as PORT-ID.DOMAIN; names below it must lead here",
    )
    made.add_argument(
        "--egress",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="let sandboxes reach hosts that their policy allows; it is `offline` unless they ask for another",
    )
    made.add_argument(
        "--dataset",
        dest="datasets",
        action=_Datasets,
        default={},
        type=_dataset,
        metavar="NAME=FOLDER[,owners=A,B]",
        help="a folder of this machine that sandboxes may mount read only; may be repeated",
    )
    made.add_argument(
        "--gpu-devices",
        default="",
        metavar="KIND",
        help="give sandboxes with --gpu the devices of this CDI kind, like nvidia.com/gpu, one holder each",
    )
    made.add_argument(
        "--webhooks",
        default=(),
        type=_webhooks,
        metavar="FILE",
        help="a JSON list of endpoints that events are posted to",
    )
    made.add_argument("--keep", action="store_true", help="leave sandboxes running at the end; the next start adopts")
    made.add_argument("--json", action="store_true", help="one line of JSON on stdout when ready")
    return made


def parse(arguments: Sequence[str] | None = None) -> UpOptions:
    """Parses a command line; exits the process with a usage message if it is invalid."""
    made = parser()
    given = made.parse_args(arguments)
    tls = {"--tls-listen": given.tls_listen, "--tls-certificate": given.tls_certificate, "--tls-key": given.tls_key}
    if any(tls.values()) and not all(tls.values()):
        missing = ", ".join(name for name, value in tls.items() if not value)
        made.error(f"argument --tls-listen: a port with TLS has a certificate and its key; {missing} is not given")
    if given.tls_listen == given.listen:
        made.error("argument --tls-listen: the address of --listen cannot have TLS too: give another one")
    if all(tls.values()) and (trouble := _certificate_trouble(given.tls_certificate, given.tls_key)):
        made.error(f"argument --tls-certificate: {trouble}")
    if not given.plain_http and not _on_loopback(given.listen.host):
        made.error(
            f"argument --listen: {given.listen} is not the loopback, and keys would cross the network in clear: "
            "leave it out and give --tls-listen with a certificate, or add --plain-http"
        )
    return UpOptions(**vars(given))


def default_state_dir(environ: Mapping[str, str]) -> Path:
    """The default state directory: short, since socket paths are limited, and removed by a reboot, as sandboxes are."""
    if os.geteuid() == 0 or "XDG_RUNTIME_DIR" not in environ:
        return Path("/run/rollbox")
    return Path(environ["XDG_RUNTIME_DIR"]) / "rollbox"


def _listen(text: str) -> Listen:
    try:
        listen = Listen.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} {error}") from error
    if listen.path is not None:
        raise argparse.ArgumentTypeError(f"{text!r} must be host:port")
    if not listen.port:
        raise argparse.ArgumentTypeError(f"{text!r} must name a port, so that clients know it")
    return listen


def _certificate_trouble(certificate: Path, key: Path) -> str:
    """Why a certificate cannot be used with a key; empty: it can."""
    for path in (certificate, key):
        try:
            path.read_bytes()
        except OSError as error:
            return f"{path} cannot be read: {error.strerror}"
    try:
        # A password would be asked for at the terminal.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password="")
    except (ssl.SSLError, ValueError) as error:
        reason = (getattr(error, "reason", None) or str(error)).replace("_", " ").lower()
        return f"{certificate} with the key {key} cannot be used, which are PEM without a password: {reason}"
    return ""


def _on_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _domain(text: str) -> str:
    try:
        return rules.domain(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} {error}") from error


def _dataset(text: str) -> tuple[str, DatasetSpec]:
    name, _, rest = text.partition("=")
    folder, _, owners = rest.partition(",owners=")
    if not re.fullmatch(DATASET_NAME, name) or not folder:
        raise argparse.ArgumentTypeError(f"{text!r}: a name is 1 to 63 of a-z, 0-9 and '-', and a folder follows '='")
    place = Path(folder).absolute().resolve()
    if trouble := folder_trouble(place):
        raise argparse.ArgumentTypeError(f"{text!r}: {trouble}")
    try:
        return name, DatasetSpec(folder=str(place), owners=owners.split(",") if owners else [])
    except ValidationError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error.errors()[0]['msg']}") from error


def _webhooks(text: str) -> tuple[Endpoint, ...]:
    try:
        return webhooks(Path(text).read_text())
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text!r} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from error


def _state_dir(text: str) -> Path:
    return Path(text).absolute()


def _positive(text: str) -> int:
    return _at_least(text, 1)


def _natural(text: str) -> int:
    return _at_least(text, 0)


def _at_least(text: str, least: int) -> int:
    if not text.isdigit() or int(text) < least:
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number from {least}")
    return int(text)
