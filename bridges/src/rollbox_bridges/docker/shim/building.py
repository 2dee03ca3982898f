"""`build`: an image of a Dockerfile and its context, which goes as an archive; what the builder says is printed."""

from __future__ import annotations

import argparse
import hashlib
import http.client
import io
import json
import os
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Final

from rollbox_bridges.docker.shim.calling import Daemon, DaemonError
from rollbox_bridges.docker.shim.creating import variables

_CHUNK_BYTES: Final = 2**18
_IGNORE: Final = ".dockerignore"
_GZIP: Final = b"\x1f\x8b"
_MAGIC: Final = b"ustar"
_MAGIC_AT: Final = 257


def build(daemon: Daemon, given: argparse.Namespace) -> int:
    """Build an image from a Dockerfile."""
    if given.push or given.output:
        raise DaemonError(0, "an image that is built stays at the platform: --push and --output are not supported")
    with tempfile.TemporaryFile() as archive:
        dockerfile = _from_stdin(archive) if given.context == "-" else _packed(archive, Path(given.context), given.file)
        archive.seek(0)
        pieces = iter(lambda: archive.read(_CHUNK_BYTES), b"")
        with daemon.open("POST", "/build", _query(given, dockerfile), pieces) as answer:
            identity = _told(answer)
    if given.iidfile:
        Path(given.iidfile).write_text(identity)
    return 0


def _query(given: argparse.Namespace, dockerfile: str) -> dict[str, Any]:
    args = dict(one.split("=", 1) for one in variables(given.build_arg))
    labels = dict((*one.split("=", 1), "")[:2] for one in given.label)
    return {
        "t": given.tag,
        "dockerfile": dockerfile,
        "buildargs": json.dumps(args),
        "labels": json.dumps(labels),
        "target": given.target,
        "platform": given.platform,
        "networkmode": given.network,
        "q": int(given.quiet),
        "nocache": int(given.no_cache),
        "pull": int(given.pull),
        "version": 1,
    }


def _from_stdin(archive: IO[bytes]) -> str:
    """Take what stdin has, a context or a Dockerfile; returns the Dockerfile's path."""
    data = sys.stdin.buffer.read()
    if data.startswith(_GZIP) or data[_MAGIC_AT:].startswith(_MAGIC):
        archive.write(data)
    else:
        with tarfile.open(fileobj=archive, mode="w") as made:
            _add(made, "Dockerfile", data)
    return "Dockerfile"


def _packed(archive: IO[bytes], folder: Path, file: str) -> str:
    """Pack a folder; a Dockerfile of another one goes with it, and is left out of its files. Returns its path there."""
    if not folder.is_dir():
        raise DaemonError(0, f"unable to prepare context: path {str(folder)!r} not found")
    path = Path(file) if file else folder / "Dockerfile"
    if not path.is_file():
        raise DaemonError(0, f"unable to prepare context: the Dockerfile {str(path)!r} is no file")
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.GNU_FORMAT) as made:
        for entry in sorted(folder.iterdir()):
            made.add(entry, arcname=entry.name)
        inside = os.path.relpath(path.resolve(), folder.resolve())
        if not inside.startswith(".."):
            return inside
        content, ignored = path.read_bytes(), folder / _IGNORE
        name = f".dockerfile.{hashlib.sha256(content).hexdigest()[:16]}"
        before = ignored.read_text() if ignored.is_file() else _IGNORE
        _add(made, name, content)
        _add(made, _IGNORE, f"{before}\n{name}\n".encode())
    return name


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))


def _told(answer: http.client.HTTPResponse) -> str:
    """Print what the builder says; returns the id of the image.

    Raises:
        DaemonError: it has failed.
    """
    identity = ""
    for line in _lines(answer):
        if "error" in line:
            raise DaemonError(0, line["error"])
        text = str(line.get("stream", ""))
        identity = line.get("aux", {}).get("ID", identity) or (text.strip() if text.startswith("sha256:") else "")
        sys.stdout.write(text)
        sys.stdout.flush()
    return identity


def _lines(answer: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    while line := answer.readline():
        yield json.loads(line)
