"""The options of `run` and `create` as the body of a create. Pure.

What a bridge refuses is passed on too: it says why.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)([kmgt]?)b?", re.IGNORECASE)
_NANO: Final = 10**9
# Option -> field of HostConfig, as it is given.
_LISTS: Final = {
    "volume": "Binds",
    "mount": "Mounts",
    "cap_add": "CapAdd",
    "cap_drop": "CapDrop",
    "security_opt": "SecurityOpt",
    "device": "Devices",
    "add_host": "ExtraHosts",
    "dns": "Dns",
    "tmpfs": "Tmpfs",
    "ulimit": "Ulimits",
}
_TEXTS: Final = {
    "network": "NetworkMode",
    "ipc": "IpcMode",
    "pid": "PidMode",
    "runtime": "Runtime",
    "gpus": "DeviceRequests",
}
_FLAGS: Final = {"privileged": "Privileged", "rm": "AutoRemove", "init": "Init", "read_only": "ReadonlyRootfs"}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `run` and `create`."""
    add = parser.add_argument
    add("--name", default="")
    add("-w", "--workdir", default="")
    add("-u", "--user", default="")
    add("-e", "--env", action="append", default=[], metavar="K[=V]")
    add("--env-file", action="append", default=[], metavar="FILE")
    add("-l", "--label", action="append", default=[], metavar="K[=V]")
    add("-i", "--interactive", action="store_true")
    add("-t", "--tty", action="store_true")
    add("--entrypoint")
    add("--hostname", "-h", default="")
    add("--platform")
    add("-m", "--memory", default="")
    add("--memory-swap", default="")
    add("--cpus", type=float, default=0.0)
    add("--pids-limit", type=int, default=0)
    add("--shm-size", default="")
    add("-p", "--publish", action="append", default=[])
    add("--stop-signal", default="")
    add("--stop-timeout", type=int)
    add("--pull", choices=("missing", "always", "never"), default="missing")
    add("--restart", default="no")
    add("--net", dest="network")
    for name in _LISTS:
        add(*(["-v"] if name == "volume" else []), f"--{name.replace('_', '-')}", action="append", default=[])
    for name in _TEXTS:
        add(f"--{name}")
    for name in _FLAGS:
        add(f"--{name.replace('_', '-')}", action="store_true")
    add("image")
    add("command", nargs=argparse.REMAINDER)


def body_of(given: argparse.Namespace, *, attached: bool) -> dict[str, Any]:
    """The body of a create.

    Args:
        given: the options.
        attached: whether this program waits for the end.

    Raises:
        ValueError: an option is malformed.
    """
    entrypoint = given.entrypoint
    ports = bindings(given.publish)
    return {
        "Image": given.image,
        "Cmd": given.command or None,
        "Entrypoint": None if entrypoint is None else [entrypoint],
        "Env": variables(given.env, given.env_file),
        "WorkingDir": given.workdir,
        "User": given.user,
        "Tty": given.tty,
        "OpenStdin": given.interactive,
        "StdinOnce": given.interactive and attached,
        "Labels": dict(_pair(one) for one in given.label),
        "Hostname": given.hostname,
        "ExposedPorts": {port: {} for port in ports},
        "StopSignal": given.stop_signal,
        "StopTimeout": given.stop_timeout,
        "HostConfig": _host(given, ports),
    }


def variables(given: Sequence[str], files: Sequence[str] = ()) -> list[str]:
    """Variables as K=V; one without a value has that of this program, or is left out, as by Docker's own client."""
    lines = [line for name in files for line in Path(name).read_text().splitlines()]
    every = [*(line for line in lines if line.strip() and not line.startswith("#")), *given]
    return [one if "=" in one else f"{one}={os.environ[one]}" for one in every if "=" in one or one in os.environ]


def bindings(given: Sequence[str]) -> dict[str, list[dict[str, str]]]:
    """Published ports: [[ADDRESS:]PORT:]PORT[/PROTOCOL]."""
    found: dict[str, list[dict[str, str]]] = {}
    for one in given:
        place, _, port = one.rpartition(":")
        address, _, host_port = place.rpartition(":")
        inside = port if "/" in port else f"{port}/tcp"
        found.setdefault(inside, []).append({"HostIp": address.strip("[]"), "HostPort": host_port})
    return found


def size_of(text: str) -> int:
    """Bytes of 512m or 1g; "" is 0, -1 stays.

    Raises:
        ValueError: it is no size.
    """
    if text in {"", "-1"}:
        return int(text or 0)
    found = _SIZE.fullmatch(text)
    if found is None:
        raise ValueError(f"invalid size: {text!r}")
    return int(float(found[1]) * (1 << 10 * " kmgt".index(found[2].lower() or " ")))


def _host(given: argparse.Namespace, ports: Mapping[str, Any]) -> dict[str, Any]:
    made = {field: getattr(given, name) or None for name, field in (_LISTS | _TEXTS | _FLAGS).items()}
    return {
        **made,
        "Memory": size_of(given.memory),
        "MemorySwap": size_of(given.memory_swap),
        "NanoCpus": round(given.cpus * _NANO),
        "PidsLimit": given.pids_limit,
        "ShmSize": size_of(given.shm_size),
        "PortBindings": ports,
        "RestartPolicy": {"Name": given.restart, "MaximumRetryCount": 0},
    }


def _pair(text: str) -> tuple[str, str]:
    key, _, value = text.partition("=")
    return key, value
