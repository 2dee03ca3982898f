"""Commands that look at containers and images, and those that end them."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

from rollbox_bridges.docker.shim.calling import Daemon, DaemonError, name
from rollbox_bridges.docker.shim.running import pull
from rollbox_bridges.docker.shim.streams import Frames

_NOT_FOUND: Final = 404
_PART: Final = re.compile(r"\{\{\s*(json\s+)?((?:\.\w+)+|\.)\s*\}\}")
_SHORT: Final = 12
_CHUNK_BYTES: Final = 2**16


def each(daemon: Daemon, given: argparse.Namespace) -> int:
    """Do one thing with each named container, and print its name; the first failure is told at the end."""
    method, path, query = given.call(given)
    return _each(given.containers, lambda one: daemon.call(method, path.format(name(one)), query))


def wait(daemon: Daemon, given: argparse.Namespace) -> int:
    """Wait for containers; prints their exit codes."""
    for one in given.containers:
        sys.stdout.write(f"{daemon.call('POST', f'/containers/{name(one)}/wait')['StatusCode']}\n")
    return 0


def logs(daemon: Daemon, given: argparse.Namespace) -> int:
    """Print what a container has written."""
    tty = daemon.call("GET", f"/containers/{name(given.container)}/json")["Config"]["Tty"]
    query = {
        "stdout": 1,
        "stderr": 1,
        "follow": int(given.follow),
        "tail": given.tail,
        "timestamps": int(given.timestamps),
    }
    frames = Frames(bare=tty)
    with daemon.open("GET", f"/containers/{name(given.container)}/logs", query) as answer:
        while data := answer.read1(_CHUNK_BYTES):
            frames.feed(data)
    return 0


def ps(daemon: Daemon, given: argparse.Namespace) -> int:
    """List containers."""
    filters: dict[str, list[str]] = {}
    for one in given.filter:
        key, _, value = one.partition("=")
        filters.setdefault(key, []).append(value)
    found = daemon.call("GET", "/containers/json", {"all": int(given.all), "filters": json.dumps(filters)})
    rows = [
        {
            "ID": one["Id"] if given.no_trunc else one["Id"][:_SHORT],
            "Image": one["Image"],
            "Command": json.dumps(one["Command"] if given.no_trunc else one["Command"][:20]),
            "State": one["State"],
            "Status": one["Status"],
            "Names": ",".join(name.removeprefix("/") for name in one["Names"]),
        }
        for one in found
    ]
    _table(rows, given, "ID")
    return 0


def images(daemon: Daemon, given: argparse.Namespace) -> int:
    """List images."""
    filters = json.dumps({"reference": [given.repository]} if given.repository else {})
    rows = []
    for one in daemon.call("GET", "/images/json", {"filters": filters}):
        identity = one["Id"] if given.no_trunc else one["Id"].removeprefix("sha256:")[:_SHORT]
        for image in one["RepoTags"]:
            repository, _, tag = image.rpartition(":")
            rows.append({"Repository": repository, "Tag": tag, "ID": identity, "Size": f"{one['Size'] // 10**6}MB"})
    _table(rows, given, "ID")
    return 0


def inspect(daemon: Daemon, given: argparse.Namespace) -> int:
    """Print all of containers or images."""
    kinds = [given.type] if given.type else ["container", "image"]
    found, code = [], 0
    for one in given.names:
        told = next((told for kind in kinds if (told := _inspected(daemon, kind, one)) is not None), None)
        if told is None:
            sys.stderr.write(f"Error: No such object: {one}\n")
            code = 1
        else:
            found.append(told)
    if given.format:
        sys.stdout.write("".join(f"{formatted(given.format, one)}\n" for one in found))
    else:
        sys.stdout.write(json.dumps(found, indent=4) + "\n")
    return code


def pulled(daemon: Daemon, given: argparse.Namespace) -> int:
    """Have an image fetched."""
    told = pull(daemon, given.image, given.platform)
    sys.stdout.write(f"{given.image}\n" if given.quiet else "".join(f"{line}\n" for line in [*told, given.image]))
    return 0


def version(daemon: Daemon, given: argparse.Namespace) -> int:
    """Print the versions of this program and of the engine."""
    told = daemon.call("GET", "/version")
    client = {"Version": told["Version"], "ApiVersion": told["ApiVersion"], "Platform": {"Name": "rollbox-docker"}}
    if given.format:
        sys.stdout.write(formatted(given.format, {"Client": client, "Server": told}) + "\n")
        return 0
    for which, one in (("Client: rollbox-docker", client), ("Server: rollbox", told)):
        sys.stdout.write(f"{which}\n Version:      {one['Version']}\n API version:  {one['ApiVersion']}\n")
    return 0


def info(daemon: Daemon, _: argparse.Namespace) -> int:
    """Print what the engine is."""
    sys.stdout.write(json.dumps(daemon.call("GET", "/info"), indent=1) + "\n")
    return 0


def formatted(template: str, value: Any) -> str:  # noqa: ANN401 - JSON
    """Fill a template of fields, `{{.State.Status}}` and `{{json .State}}`.

    Raises:
        ValueError: it has more than that, or a field that is not there.
    """
    if template == "json":
        return json.dumps(value)
    text = _PART.sub(lambda found: _field(found[2], value, as_json=bool(found[1])), template)
    if "{{" in text:
        raise ValueError(f"the template {template!r} has more than fields: {{{{.A.B}}}} and {{{{json .A}}}} are known")
    return text.replace("\\n", "\n").replace("\\t", "\t")


def _field(path: str, value: Any, *, as_json: bool) -> str:  # noqa: ANN401 - JSON
    for part in [part for part in path.split(".") if part]:
        if not isinstance(value, dict) or part not in value:
            raise ValueError(f"template: there is no field {path}")
        value = value[part]
    if as_json or isinstance(value, dict | list):
        return json.dumps(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _inspected(daemon: Daemon, kind: str, one: str) -> Any:  # noqa: ANN401 - JSON
    try:
        return daemon.call("GET", f"/{kind}s/{name(one)}/json")
    except DaemonError as error:
        if error.status != _NOT_FOUND:
            raise
        return None


def _each(names: Sequence[str], do: Callable[[str], Any]) -> int:
    code = 0
    for one in names:
        try:
            do(one)
            sys.stdout.write(f"{one}\n")
        except DaemonError as error:
            sys.stderr.write(f"{error}\n")
            code = 1
    return code


def _table(rows: Sequence[dict[str, str]], given: argparse.Namespace, quiet: str) -> None:
    if given.quiet:
        sys.stdout.write("".join(f"{row[quiet]}\n" for row in rows))
        return
    if given.format and not given.format.startswith("table"):
        sys.stdout.write("".join(f"{formatted(given.format, row)}\n" for row in rows))
        return
    heads = list(rows[0]) if rows else ["ID"]
    lines = [[head.upper() for head in heads], *([row[head] for head in heads] for row in rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(heads))]
    for line in lines:
        sys.stdout.write(
            "   ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() + "\n"
        )
