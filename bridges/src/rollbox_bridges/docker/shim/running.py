"""`run`, `create`, `start` and `exec`: commands, their streams and their exit codes."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import nullcontext
from typing import Any, Final

from rollbox_bridges.docker.shim import creating, streams
from rollbox_bridges.docker.shim.calling import Daemon, DaemonError, name

_NOT_FOUND: Final = 404
_NOT_STARTED: Final = 125
_COULD_NOT: Final = 126
_NO_COMMAND: Final = 127


def run(daemon: Daemon, given: argparse.Namespace) -> int:
    """Create a container and start it; without -d, see it to its end."""
    try:
        made = _created(daemon, given, attached=not given.detach)
        if given.detach:
            daemon.call("POST", f"/containers/{made}/start")
            sys.stdout.write(f"{made}\n")
            return 0
        return _attached(daemon, made, tty=given.tty, stdin=given.interactive)
    except (DaemonError, ValueError) as error:
        sys.stderr.write(f"docker: {error}\n")
        text = str(error)
        return (
            _NO_COMMAND
            if "not found in $PATH" in text
            else _COULD_NOT
            if "failed to create task" in text
            else _NOT_STARTED
        )


def create(daemon: Daemon, given: argparse.Namespace) -> int:
    """Create a container."""
    sys.stdout.write(_created(daemon, given, attached=given.interactive) + "\n")
    return 0


def start(daemon: Daemon, given: argparse.Namespace) -> int:
    """Start containers; with -a, see one to its end."""
    if given.attach or given.interactive:
        if len(given.containers) != 1:
            raise ValueError("you cannot start and attach multiple containers at once")
        told = daemon.call("GET", f"/containers/{name(given.containers[0])}/json")
        return _attached(daemon, told["Id"], tty=told["Config"]["Tty"], stdin=given.interactive)
    for one in given.containers:
        daemon.call("POST", f"/containers/{name(one)}/start")
        sys.stdout.write(f"{one}\n")
    return 0


def exec_(daemon: Daemon, given: argparse.Namespace) -> int:
    """Run a command in a container; returns its exit code."""
    body = {
        "Cmd": given.command,
        "Env": creating.variables(given.env, given.env_file),
        "WorkingDir": given.workdir,
        "User": given.user,
        "Tty": given.tty,
        "Privileged": given.privileged,
        "AttachStdin": given.interactive and not given.detach,
        "AttachStdout": not given.detach,
        "AttachStderr": not given.detach,
    }
    made = daemon.call("POST", f"/containers/{name(given.container)}/exec", body=body)["Id"]
    if given.detach:
        daemon.call("POST", f"/exec/{made}/start", body={"Detach": True, "Tty": given.tty})
        return 0
    taken, early = daemon.take_over(f"/exec/{made}/start", body={"Detach": False, "Tty": given.tty})
    with taken, _keys(daemon, f"/exec/{made}/resize", wanted=given.tty and given.interactive):
        streams.copy(taken, early, bare=given.tty, stdin=given.interactive)
    code = daemon.call("GET", f"/exec/{made}/json")["ExitCode"]
    return int(_NOT_STARTED if code is None else code)


def _created(daemon: Daemon, given: argparse.Namespace, *, attached: bool) -> str:
    body = creating.body_of(given, attached=attached)
    query = {"name": given.name or None, "platform": given.platform}
    if given.pull == "always":
        pull(daemon, given.image, given.platform)
    try:
        return str(daemon.call("POST", "/containers/create", query, body)["Id"])
    except DaemonError as error:
        if error.status != _NOT_FOUND or given.pull != "missing":
            raise
    pull(daemon, given.image, given.platform)
    return str(daemon.call("POST", "/containers/create", query, body)["Id"])


def pull(daemon: Daemon, image: str, platform: str | None = None) -> list[str]:
    """Have an image fetched; returns what is said of it.

    Raises:
        DaemonError: it cannot be.
    """
    told = daemon.open("POST", "/images/create", {"fromImage": image, "platform": platform}).read()
    lines: list[dict[str, Any]] = [json.loads(line) for line in told.splitlines() if line.strip()]
    for line in lines:
        if "error" in line:
            raise DaemonError(0, line["error"])
    return [str(line["status"]) for line in lines if "status" in line]


def _attached(daemon: Daemon, made: str, *, tty: bool, stdin: bool) -> int:
    query = {"stream": 1, "stdout": 1, "stderr": 1, "stdin": int(stdin)}
    taken, early = daemon.take_over(f"/containers/{made}/attach", query)
    # Its answer comes with the end; its head says that the end is waited for, also of a container that is removed then.
    waiting = daemon.open("POST", f"/containers/{made}/wait", {"condition": "next-exit"})
    daemon.call("POST", f"/containers/{made}/start")
    with taken, _keys(daemon, f"/containers/{made}/resize", wanted=tty and stdin):
        streams.copy(taken, early, bare=tty, stdin=stdin)
    told = json.loads(waiting.read())
    if told["Error"]:
        sys.stderr.write(f"{told['Error']['Message']}\n")
    return int(told["StatusCode"])


def _keys(daemon: Daemon, path: str, *, wanted: bool) -> Any:  # noqa: ANN401 - a context manager
    if not wanted:
        return nullcontext()
    return streams.terminal(lambda columns, rows: daemon.call("POST", path, {"w": columns, "h": rows}))
