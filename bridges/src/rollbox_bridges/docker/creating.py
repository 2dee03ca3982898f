"""The body of a create: what its sandbox and its main process are to be. Pure."""

from __future__ import annotations

import re
import signal
from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from rollbox import ImageConfig
from rollbox_bridges.docker import fields
from rollbox_bridges.docker.bindings import Binding, exposed_of, published_of
from rollbox_bridges.docker.limits import REASONS, Limits, limits_of, offline
from rollbox_bridges.docker.words import Refusal, not_honoured

_KNOWN: Final = frozenset(
    {
        "Image",
        "Cmd",
        "Entrypoint",
        "Env",
        "WorkingDir",
        "User",
        "Tty",
        "OpenStdin",
        "StdinOnce",
        "Labels",
        "HostConfig",
        "ExposedPorts",
        "StopSignal",
        "StopTimeout",
        "NetworkDisabled",
        "NetworkingConfig",
        # They tell what a client is going to attach to.
        "AttachStdin",
        "AttachStdout",
        "AttachStderr",
    }
)
_HARMLESS: Final[dict[str, tuple[Any, ...]]] = {"Healthcheck": ({"Test": ["NONE"]},)}
_REASONS: Final = {
    "Hostname": "the name of a sandbox's host is its own",
    "Domainname": "the name of a sandbox's host is its own",
    "MacAddress": "a sandbox has no network interface of its own",
    "Volumes": "a sandbox's files are all on its own disk: leave it out, and write where you like",
    "Healthcheck": "whether a sandbox lives is asked by the platform",
    "Runtime": "the runtime is the installation's",
    "Shell": "it is for builds",
    "OnBuild": "it is for builds",
}
# What base images run on a terminal, where the platform does not tell the command of an image.
_SHELL: Final = ("sh",)
# Labels that the platform takes are its labels too, so that its lists can be asked for them.
_LABEL: Final = re.compile(r"[A-Za-z0-9._/-]{1,128}")
_LABEL_VALUE: Final = re.compile(r"[^\x00-\x1f\x7f]{0,256}")
_MOST_LABELS: Final = 60
_SIGNAL: Final = re.compile(r"[0-9]{1,2}")
# SIGRTMIN+3 is how images of systemd are stopped.
_REAL_TIME: Final = re.compile(r"(?:SIG)?RTMIN(?:\+([0-9]|[12][0-9]|30))?")
OWN: Final = "docker/"
"""What labels of the bridge itself begin with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a client wants to have created.

    Attributes:
        image: as it has named it.
        entrypoint, cmd: of which the main process is made; None: the image's.
        env: of every process, beside the image's.
        cwd, user: of every process; "": the image's.
        exposed: ports that it names, beside the image's.
        tty: whether the main process has a terminal.
        stdin: whether its input is open.
        stdin_once: whether its input ends with the first client that was attached to it.
        labels: all of them.
        stop_signal: number; None: the image's.
        stop_s: seconds between the signal and the end.
        limits: what it may use.
    """

    image: str
    entrypoint: tuple[str, ...] | None = None
    cmd: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str = ""
    user: str = ""
    tty: bool = False
    stdin: bool = False
    stdin_once: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    stop_signal: int | None = None
    stop_s: int = 10
    exposed: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)

    def platform_labels(self, name: str) -> dict[str, str]:
        """The labels of the sandbox: those that the platform takes, and the name."""
        kept = [
            (key, value)
            for key, value in self.labels.items()
            if _LABEL.fullmatch(key) and _LABEL_VALUE.fullmatch(value) and not key.startswith(OWN)
        ]
        return {**dict(kept[:_MOST_LABELS]), f"{OWN}name": name}


def wish_of(body: Any) -> Wish:  # noqa: ANN401 - JSON
    """Read the body of a create.

    Raises:
        Refusal: it is malformed, or asks for what there is not.
    """
    asked = fields.taken("", body, _KNOWN, _HARMLESS, _REASONS)
    image = fields.text("Image", asked.get("Image"))
    if not image:
        raise Refusal(400, "no image is named: Image is empty")
    return Wish(
        image=image,
        entrypoint=_entrypoint(body, asked.get("Entrypoint")),
        cmd=tuple(fields.words("Cmd", asked.get("Cmd"))),
        env=fields.variables(asked.get("Env")),
        cwd=_directory(asked.get("WorkingDir")),
        user=user_of(asked.get("User")),
        tty=fields.flag("Tty", asked.get("Tty")),
        stdin=fields.flag("OpenStdin", asked.get("OpenStdin")),
        stdin_once=fields.flag("StdinOnce", asked.get("StdinOnce")),
        labels=fields.texts("Labels", asked.get("Labels")),
        stop_signal=signal_of(fields.text("StopSignal", asked.get("StopSignal")), 0) or None,
        stop_s=fields.whole("StopTimeout", asked.get("StopTimeout", 10)),
        exposed=exposed_of(asked.get("ExposedPorts")),
        limits=_within(limits_of(asked.get("HostConfig")), asked),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """A wish together with what its image says.

    Attributes:
        argv: of the main process.
        entrypoint, cmd: of which that is made.
        env: of every process: what the image says, and what was asked for.
        cwd, user: "": `/`, and the image's.
        labels: of the container.
        stop_signal: number.
        ports: published ones.
    """

    argv: tuple[str, ...]
    entrypoint: tuple[str, ...]
    cmd: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str = ""
    user: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    stop_signal: int = signal.SIGTERM
    ports: tuple[Binding, ...] = ()


def settled(wish: Wish, config: ImageConfig | None) -> Settled:
    """What a wish comes to with an image, by Docker's rules.

    Args:
        wish: of a create.
        config: of the image; None: it is not known.

    Raises:
        Refusal: there is no command, or a port of the image's is not of TCP and is to be published.
    """
    said = config or ImageConfig(wish.image)
    # An entrypoint of one's own takes the image's command away too.
    cmd = wish.cmd or (() if wish.entrypoint else said.cmd)
    entrypoint = said.entrypoint if wish.entrypoint is None else wish.entrypoint
    # Docker's command line says that there is to be none by one empty word.
    entrypoint = () if entrypoint == ("",) else entrypoint
    argv = (*entrypoint, *cmd)
    if not argv and config is None and (wish.tty or wish.stdin):
        argv = cmd = _SHELL
    if not argv:
        why = "" if config is not None else ": the platform does not tell the command of this image, name one"
        raise Refusal(400, f"no command specified{why}")
    return Settled(
        argv=argv,
        entrypoint=entrypoint,
        cmd=cmd,
        env={**said.env, **wish.env},
        cwd=wish.cwd or said.cwd,
        user=wish.user or said.user,
        labels={**said.labels, **wish.labels},
        stop_signal=wish.stop_signal or signal_of(said.stop_signal, signal.SIGTERM),
        ports=published_of(wish.limits.ports, (*wish.exposed, *said.ports), publish_all=wish.limits.publish_all),
    )


def without(body: Any, left_out: Container[str]) -> list[str]:  # noqa: ANN401 - JSON
    """Take fields out of the body of a create; returns what is to be told of that.

    Args:
        body: of the create; changed.
        left_out: names of fields of its `HostConfig`.
    """
    config = body.get("HostConfig") if isinstance(body, dict) else None
    if not isinstance(config, dict):
        return []
    gone = [name for name in config if name in left_out and not fields.is_zero(config[name])]
    return [f"HostConfig.{name} {config.pop(name)} was left out: {REASONS[name]}" for name in gone]


def signal_of(text: str, default: int) -> int:
    """Read a signal: a number, or a name with SIG or without.

    Raises:
        Refusal: there is none.
    """
    if not text:
        return default
    if _SIGNAL.fullmatch(text) and 1 <= int(text) <= signal.SIGRTMAX:
        return int(text)
    if found := _REAL_TIME.fullmatch(text.upper()):
        return signal.SIGRTMIN + int(found[1] or 0)
    try:
        return signal.Signals["SIG" + text.upper().removeprefix("SIG")]
    except KeyError as error:
        raise Refusal(400, f"invalid signal: {text[:40]}") from error


def user_of(value: Any) -> str:  # noqa: ANN401 - JSON
    """Read a user.

    Raises:
        Refusal: it names a group too.
    """
    user = fields.text("User", value)
    name, separator, _ = user.partition(":")
    if separator:
        raise not_honoured(f"User {user!r}", f"name the user alone ({name}): a process has all its user's groups")
    return user


def _entrypoint(body: Mapping[str, Any], value: Any) -> tuple[str, ...] | None:  # noqa: ANN401 - JSON
    """Read an entrypoint; an empty list says that there is none, whatever the image has."""
    said = fields.words("Entrypoint", value)
    if said:
        return tuple(said)
    return () if any(name.lower() == "entrypoint" and given == [] for name, given in body.items()) else None


def _directory(value: Any) -> str:  # noqa: ANN401 - JSON
    path = fields.text("WorkingDir", value)
    if path and not path.startswith("/"):
        raise Refusal(400, f"the working directory {path[:200]!r} is invalid, it needs to be an absolute path")
    return path


def _within(limits: Limits, asked: Mapping[str, Any]) -> Limits:
    """Take the network's other fields into account."""
    config = fields.taken("NetworkingConfig.", asked.get("NetworkingConfig"), {"EndpointsConfig"}, {}, {})
    ends = config.get("EndpointsConfig") or {}
    if not isinstance(ends, dict):
        raise Refusal(400, "NetworkingConfig.EndpointsConfig is not an object")
    none = [offline(name) for name in ends if not fields.taken(f"the network {name!r}: ", ends[name], (), {}, {})]
    disabled = fields.flag("NetworkDisabled", asked.get("NetworkDisabled"))
    if any(none) and not all(none):
        raise Refusal(400, "the container is to have the network none and another one")
    if disabled or any(none):
        return replace(limits, offline=True)
    return limits
