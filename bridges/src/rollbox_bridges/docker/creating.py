"""The body of a create: what its sandbox and its main process are to be. Pure."""

from __future__ import annotations

import re
import signal
from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from rollbox_bridges.docker import fields
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
# What base images run on a terminal; the bridge is not told the command of an image.
_SHELL: Final = ("sh",)
# Labels that the platform takes are its labels too, so that its lists can be asked for them.
_LABEL: Final = re.compile(r"[A-Za-z0-9._/-]{1,128}")
_LABEL_VALUE: Final = re.compile(r"[^\x00-\x1f\x7f]{0,256}")
_MOST_LABELS: Final = 60
OWN: Final = "docker/"
"""What labels of the bridge itself begin with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a client wants to have created.

    Attributes:
        image: as it has named it.
        argv: of the main process.
        entrypoint, cmd: of which that is made.
        env: of every process.
        cwd, user: of every process; "": the image's.
        tty: whether the main process has a terminal.
        stdin: whether its input is open.
        stdin_once: whether its input ends with the first client that was attached to it.
        labels: all of them.
        stop_signal: number.
        stop_s: seconds between the signal and the end.
        limits: what it may use.
    """

    image: str
    argv: tuple[str, ...]
    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str = ""
    user: str = ""
    tty: bool = False
    stdin: bool = False
    stdin_once: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    stop_signal: int = signal.SIGTERM
    stop_s: int = 10
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
    limits = limits_of(asked.get("HostConfig"), asked.get("ExposedPorts"))
    entrypoint = [one for one in fields.words("Entrypoint", asked.get("Entrypoint")) if one]
    cmd = fields.words("Cmd", asked.get("Cmd"))
    tty, stdin = fields.flag("Tty", asked.get("Tty")), fields.flag("OpenStdin", asked.get("OpenStdin"))
    return Wish(
        image=image,
        argv=_argv(entrypoint, cmd, interactive=tty or stdin),
        entrypoint=tuple(entrypoint),
        cmd=tuple(cmd),
        env=fields.variables(asked.get("Env")),
        cwd=_directory(asked.get("WorkingDir")),
        user=user_of(asked.get("User")),
        tty=tty,
        stdin=stdin,
        stdin_once=fields.flag("StdinOnce", asked.get("StdinOnce")),
        labels=fields.texts("Labels", asked.get("Labels")),
        stop_signal=signal_of(fields.text("StopSignal", asked.get("StopSignal")), signal.SIGTERM),
        stop_s=fields.whole("StopTimeout", asked.get("StopTimeout", 10)),
        limits=_within(limits, asked),
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
    if text.isascii() and text.isdigit() and 1 <= int(text[:4]) <= 64:
        return int(text)
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


def _argv(entrypoint: list[str], cmd: list[str], *, interactive: bool) -> tuple[str, ...]:
    argv = (*entrypoint, *cmd)
    if argv:
        return argv
    if interactive:
        return _SHELL
    raise not_honoured(
        "a container without a command", "the platform does not tell the command of an image: name it, like `sleep 2h`"
    )


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
