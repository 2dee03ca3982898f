"""Options that several commands have."""

from __future__ import annotations

import functools
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from math import inf, isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, cast, get_type_hints

import typer

from rollbox import labels as label_rules
from rollbox.errors import InvalidArgument
from rollbox.quantity import DEFAULT_CPU, DEFAULT_MEMORY

if TYPE_CHECKING:
    from rollbox.dataset import Dataset, Scratch
    from rollbox.egress import Egress
    from rollbox.options import Pull, ResourceOptions

_SECONDS_OF = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SPAN = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|[smhd]))+", re.ASCII)


def seconds(text: str | float) -> float:
    """Read a time: seconds, which defaults are, or numbers with units (ms, s, m, h, d), as "90", "5m" or "1h30m".

    Raises:
        BadParameter: it is none.
    """
    if not isinstance(text, str):
        return float(text)
    if _SPAN.fullmatch(text):
        return sum(float(one) * _SECONDS_OF[unit] for one, unit in re.findall(r"([\d.]+)(ms|[smhd])", text))
    with suppress(ValueError):
        if isfinite(found := float(text)):
            return found
    raise typer.BadParameter(f"{text!r} is not a time: write seconds, or units as in 90s, 5m or 1h30m")


def time_option(help: str, *, least_s: float = -inf, most_s: float = inf) -> Any:  # noqa: A002, ANN401
    """Declare an option that takes a time; its parameter gets seconds, within these bounds."""

    def within(text: str | float) -> float:
        if not least_s <= (found := seconds(text)) <= most_s:
            bounds = f"at least {least_s:g} s" if most_s == inf else f"from {least_s:g} s to {most_s:g} s"
            raise typer.BadParameter(f"{text!r} is not {bounds}")
        return found

    return typer.Option(metavar="TIME", help=help, parser=within)


Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Labels = Annotated[list[str] | None, typer.Option("--label", "-l", metavar="KEY=VALUE", help="May be repeated.")]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Show it anew every two seconds, until Ctrl-C.")]
Wait = Annotated[bool, typer.Option("--wait", help="Wait until it is confirmed that nothing of them runs any more.")]
WaitTimeout = Annotated[float | None, time_option("How long --wait waits at most (60).")]
POLICY_HELP = "A preset (offline, packages, swe-eval, your own), or @FILE with a policy in JSON; @- reads stdin."


class ResourceArguments(NamedTuple):
    """The options of `rollbox.options.Resources`, as they are typed."""

    cpu: Annotated[str, typer.Option(metavar="[REQUEST:]LIMIT", help="Cores: 2, 0.5, 500m or 0.1:2.")] = ":".join(
        map(str, DEFAULT_CPU)
    )
    memory: Annotated[str, typer.Option(metavar="[REQUEST:]LIMIT", help="Sizes: 2Gi or 256Mi:2Gi.")] = ":".join(
        DEFAULT_MEMORY
    )
    pids: Annotated[int | None, typer.Option(help="Most processes and threads at a time (512).")] = None
    disk: Annotated[str | None, typer.Option(metavar="SIZE", help="Most of the node's disk: 2Gi.")] = None
    gpu: Annotated[int, typer.Option(help="Devices, where the installation has some for sandboxes.")] = 0
    node_selector: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Label that its node must have; may be repeated.")
    ] = None
    pull: Annotated[str, typer.Option(metavar="HOW", help="How its node gets the image: auto, full or lazy.")] = "auto"
    network: Annotated[
        str | None, typer.Option(metavar="NAME", help="A direct network of the installation, past egress.")
    ] = None
    mounts: Annotated[
        list[str] | None,
        typer.Option(
            "--mount", metavar="PATH=KIND:NAME", help="/data=dataset:NAME or /cache=scratch:NAME[:SIZE]; repeatable."
        ),
    ] = None

    def options(self) -> ResourceOptions:
        """Return them as keyword arguments; InvalidArgument for one of another form."""
        return {
            "cpu": _pair(self.cpu),
            "memory": _pair(self.memory),
            "pids": self.pids,
            "disk": self.disk,
            "gpu": self.gpu,
            "node_selector": label_rules.parse(self.node_selector or ()),
            "pull": cast("Pull", self.pull),
            "network": self.network,
            "mounts": mounts_of(self.mounts or ()),
        }


def with_resources(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command all of `ResourceArguments` as options, in place of its parameter `resources`."""

    @functools.wraps(command)
    def called(**given: Any) -> None:  # noqa: ANN401
        typed = {name: given.pop(name) for name in ResourceArguments._fields}
        command(**given, resources=ResourceArguments(**typed))

    # Typer reads the parameters of a command from here.
    vars(called)["__signature__"] = inspect.Signature([*_parameters(command)])
    return called


def _parameters(command: Callable[..., None]) -> Iterator[inspect.Parameter]:
    hints = get_type_hints(ResourceArguments, include_extras=True)
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        if parameter.name != "resources":
            yield parameter
            continue
        for name, default in ResourceArguments._field_defaults.items():
            yield inspect.Parameter(name, parameter.kind, default=default, annotation=hints[name])


def mounts_of(given: Iterable[str]) -> dict[str, Dataset | Scratch]:
    """Read mounts as they are typed.

    Raises:
        InvalidArgument: one is of another form, or two have the same path.
    """
    from rollbox.dataset import Dataset, Scratch

    found: dict[str, Dataset | Scratch] = {}
    for text in given:
        path, _, what = text.partition("=")
        kind, _, name = what.partition(":")
        name, sized, size = name.partition(":")
        if kind not in ("dataset", "scratch") or not name or (sized and (kind == "dataset" or not size)):
            form = "PATH=dataset:NAME or PATH=scratch:NAME[:SIZE]"
            raise InvalidArgument(f"--mount {text!r} is not of the form {form}")
        if path in found:
            raise InvalidArgument(f"--mount {path} is given twice")
        found[path] = Dataset(name) if kind == "dataset" else Scratch(name, size or None)
    return found


def policy_of(text: str) -> Egress:
    """Read a POLICY as it is typed: a name, or @FILE.

    Raises:
        InvalidArgument: the file cannot be read, or holds no policy.
    """
    if not text.startswith("@"):
        return text
    from rollbox.egress import EgressPolicy

    try:
        written = typed_in(sys.stdin.read) if text == "@-" else Path(text[1:]).read_text()
        return EgressPolicy.from_json(json.loads(written))
    except OSError as error:
        raise InvalidArgument(f"{_named(text)} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise InvalidArgument(f"{_named(text)} is not JSON: {error}") from error


def _named(text: str) -> str:
    return "the standard input" if text == "@-" else text[1:]


def typed_in(read: Callable[[], str]) -> str:
    """Read the standard input by one of its methods.

    Raises:
        InvalidArgument: it cannot be read, or is no text.
    """
    try:
        return read()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise InvalidArgument(f"the standard input cannot be read: {why}", hint="") from error


def _pair(text: str) -> str | tuple[str, str]:
    """Read `limit` or `request:limit`."""
    parts = text.split(":")
    if len(parts) > 2:
        raise InvalidArgument(f"{text!r} is not of the form LIMIT or REQUEST:LIMIT")
    return parts[0] if len(parts) == 1 else (parts[0], parts[1])
