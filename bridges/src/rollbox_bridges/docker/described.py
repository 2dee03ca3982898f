"""Containers, execs and the engine itself as Docker describes them. Pure."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any, Final

from rollbox_bridges.docker.bindings import told
from rollbox_bridges.docker.container import Container
from rollbox_bridges.docker.execs import Exec
from rollbox_bridges.docker.references import ARCHITECTURE

API_VERSION: Final = "1.44"
LEAST_API_VERSION: Final = "1.24"
_NEVER: Final = "0001-01-01T00:00:00Z"
_NANO: Final = 10**9


def container(one: Container) -> dict[str, Any]:
    """A container as an inspect tells it."""
    wish, main = one.wish, one.settled
    return {
        "Id": one.id,
        "Created": time_of(one.times.created),
        "Path": main.argv[0],
        "Args": list(main.argv[1:]),
        "State": state(one),
        "Image": one.image_id,
        "Name": f"/{one.name}",
        "RestartCount": 0,
        "Driver": "rollbox",
        "Platform": "linux",
        "MountLabel": "",
        "ProcessLabel": "",
        "AppArmorProfile": "",
        "ExecIDs": None,
        "Mounts": [],
        "HostConfig": _host(one),
        "Config": {
            "Hostname": one.id[:12],
            "Domainname": "",
            "User": main.user,
            "Tty": wish.tty,
            "OpenStdin": wish.stdin,
            "StdinOnce": wish.stdin_once,
            "AttachStdin": False,
            "AttachStdout": False,
            "AttachStderr": False,
            "Env": [f"{name}={value}" for name, value in main.env.items()],
            "Cmd": list(main.cmd) or None,
            "Entrypoint": list(main.entrypoint) or None,
            "Image": wish.image,
            "WorkingDir": main.cwd,
            "Labels": dict(main.labels),
            "Volumes": None,
        },
        "NetworkSettings": _network(one),
    }


def row(one: Container) -> dict[str, Any]:
    """A container of a list."""
    ports = [
        {"IP": binding.address, "PrivatePort": binding.port, "PublicPort": port, "Type": "tcp"}
        for binding, port in one.published.ports
    ]
    return {
        "Id": one.id,
        "Names": [f"/{one.name}"],
        "Image": one.wish.image,
        "ImageID": one.image_id,
        "Command": " ".join(one.settled.argv),
        "Created": int(one.times.created),
        "Ports": ports,
        "Labels": dict(one.settled.labels),
        "State": one.state,
        "Status": _status(one),
        "HostConfig": {"NetworkMode": _mode(one)},
        "NetworkSettings": {"Networks": {}},
        "Mounts": [],
    }


def state(one: Container) -> dict[str, Any]:
    """The state of a container."""
    end = one.end
    return {
        "Status": one.state,
        "Running": one.state == "running",
        "Paused": False,
        "Restarting": False,
        "OOMKilled": end is not None and end.oom_killed,
        "Dead": one.state == "dead",
        "Pid": one.pid,
        "ExitCode": 0 if end is None else end.code,
        "Error": one.error,
        "StartedAt": time_of(one.times.started),
        "FinishedAt": time_of(one.times.finished),
    }


def execution(one: Exec) -> dict[str, Any]:
    """An exec as an inspect tells it."""
    wish = one.wish
    return {
        "ID": one.id,
        "ContainerID": one.container.id,
        "Running": one.running,
        "ExitCode": one.code,
        "Pid": one.pid,
        "CanRemove": False,
        "DetachKeys": "",
        "OpenStdin": wish.stdin,
        "OpenStdout": wish.stdout,
        "OpenStderr": wish.stderr,
        "ProcessConfig": {
            "entrypoint": wish.argv[0],
            "arguments": list(wish.argv[1:]),
            "tty": wish.tty,
            "privileged": False,
            "user": wish.user,
        },
    }


def version(of_platform: str) -> dict[str, Any]:
    """What speaks here.

    Args:
        of_platform: its version.
    """
    details = {"ApiVersion": API_VERSION, "MinAPIVersion": LEAST_API_VERSION, "Os": "linux", "Arch": ARCHITECTURE}
    return {
        "Platform": {"Name": "rollbox"},
        "Version": of_platform,
        "ApiVersion": API_VERSION,
        "MinAPIVersion": LEAST_API_VERSION,
        "Os": "linux",
        "Arch": ARCHITECTURE,
        "KernelVersion": "",
        "GoVersion": "",
        "GitCommit": "",
        "Components": [{"Name": "Engine", "Version": of_platform, "Details": details}],
    }


def time_of(at_s: float) -> str:
    """A moment, Unix seconds; 0: never."""
    return _NEVER if not at_s else datetime.fromtimestamp(at_s, UTC).isoformat().replace("+00:00", "Z")


def _host(one: Container) -> dict[str, Any]:
    limits = one.wish.limits
    memory = limits.memory[1] if isinstance(limits.memory, tuple) else limits.memory
    ports = told((binding, binding.host_port) for binding in one.settled.ports)
    return {
        "NetworkMode": _mode(one),
        "AutoRemove": limits.auto_remove,
        "Memory": memory or 0,
        "NanoCpus": round((limits.cpu or 0) * _NANO),
        "PidsLimit": limits.pids,
        "PortBindings": ports,
        "Binds": None,
        "Privileged": False,
        "RestartPolicy": {"Name": "no", "MaximumRetryCount": 0},
        "LogConfig": {"Type": "json-file", "Config": {}},
    }


def _network(one: Container) -> dict[str, Any]:
    # There are no addresses that this machine reaches: published ports are.
    return {
        "Ports": told(one.published.ports),
        "IPAddress": "",
        "Gateway": "",
        "Networks": {_mode(one): {"IPAddress": ""}},
    }


def _mode(one: Container) -> str:
    return "none" if one.wish.limits.offline else "bridge"


def _status(one: Container) -> str:
    if one.state == "running":
        return f"Up {_ago(one.times.started)}"
    if one.end is None or not one.times.finished:
        return one.state.capitalize()
    return f"{one.state.capitalize()} ({one.end.code}) {_ago(one.times.finished)} ago"


def _ago(at_s: float) -> str:
    seconds = max(0, int(time.time() - at_s))
    for name, length in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length} {name}"
    return f"{seconds} seconds"
