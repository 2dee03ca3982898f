"""The command-line options of ``rollbox up``."""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

from controlplane.settings import EXIT_CONFIG, Listen, rules

DEFAULT_LISTEN: Final = "127.0.0.1:7420"
# Every browser resolves names below it to this machine (RFC 6761 section 6.3).
DEFAULT_PORTS_DOMAIN: Final = "localhost"


@dataclass(frozen=True, slots=True)
class UpOptions:
    """The options; ``parser`` describes them."""

    listen: Listen
    state_dir: Path
    engine: str | None
    starts_in_flight: int
    max_sandboxes: int
    ports_domain: str
    egress: bool
    keep: bool
    json: bool


class _Parser(argparse.ArgumentParser):
    """An argument parser that exits with ``EXIT_CONFIG``: a bad option has the same exit status as a bad variable."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(EXIT_CONFIG, f"{self.prog}: {message}\n")


def parser(environ: Mapping[str, str] = os.environ) -> argparse.ArgumentParser:
    """The command line of ``rollbox up``."""
    made = _Parser(prog="rollbox up", description="Run rollbox on this machine's container engine.")
    made.add_argument("--listen", default=DEFAULT_LISTEN, type=_listen, help="host:port of the one address")
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
    made.add_argument("--keep", action="store_true", help="leave sandboxes running at the end; the next start adopts")
    made.add_argument("--json", action="store_true", help="one line of JSON on stdout when ready")
    return made


def parse(arguments: Sequence[str] | None = None) -> UpOptions:
    """Parses a command line; exits the process with a usage message if it is invalid."""
    return UpOptions(**vars(parser().parse_args(arguments)))


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


def _domain(text: str) -> str:
    try:
        return rules.domain(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} {error}") from error


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
