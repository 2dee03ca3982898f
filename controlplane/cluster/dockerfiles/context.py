"""The context of a build as an archive: checked as one of a stranger, and what goes beside it to the builder."""

import io
import posixpath
import tarfile
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import BinaryIO, Final

from controlplane.errors import Problem

MOST_FILES: Final = 100_000
MOST_BYTES: Final = 1 << 30
# The kernel's own.
MOST_LINKS: Final = 40


def check(file: BinaryIO) -> None:
    """Reads the archive once, from its beginning.

    Raises:
        Problem: invalid_argument: it is none, or has what no context may have; payload_too_large.
    """
    file.seek(0)
    names: set[str] = set()
    links: dict[str, str] = {}
    total_bytes = 0
    try:
        with tarfile.open(fileobj=file, mode="r|") as archive:
            for entry in archive:
                _check_entry(entry)
                name = posixpath.normpath(entry.name)
                if name in names:
                    raise _refused(name, "it is there twice")
                names.add(name)
                total_bytes += entry.size
                if entry.issym():
                    links[name] = entry.linkname
                if len(names) > MOST_FILES or total_bytes > MOST_BYTES:
                    detail = f"a context has at most {MOST_FILES} files and {MOST_BYTES} bytes"
                    raise Problem("payload_too_large", detail, reason="context_too_large")
    except (tarfile.TarError, EOFError, ValueError) as error:
        raise Problem("invalid_argument", f"the context is no tar archive: {error}", field="context") from error
    for name in names:
        if any(parent in links for parent in _parents(name)):
            raise _refused(name, "it is in a link")
    for name, link in links.items():
        if leads_out(name, links):
            raise _refused(name, f"it is a link out of the context, to {link[:200]!r}")


def beside(files: Mapping[str, bytes], modes: Mapping[str, int] = MappingProxyType({})) -> bytes:
    """The beginning of an archive, which goes on with that of a context.

    Args:
        files: contents by name.
        modes: of those that others than their owner may read.
    """
    made = io.BytesIO()
    for name, content in files.items():
        entry = tarfile.TarInfo(name)
        entry.size, entry.mode = len(content), modes.get(name, 0o600)
        made.write(entry.tobuf(tarfile.PAX_FORMAT) + content + b"\0" * (-len(content) % tarfile.BLOCKSIZE))
    return made.getvalue()


def _check_entry(entry: tarfile.TarInfo) -> None:
    name = entry.name
    if not (entry.isfile() or entry.isdir() or entry.issym()) or entry.issparse():
        raise _refused(name, "it is no file, folder or symbolic link")
    if not name or name.startswith("/") or ".." in name.split("/"):
        raise _refused(name, "its name leads out of the context")


def leads_out(name: str, links: Mapping[str, str]) -> bool:
    """Whether a symbolic link in a context leads out of it, on its own or by others on its way.

    Args:
        name: of the link.
        links: where each link leads, by name.
    """
    at = name.split("/")[:-1]
    left = links[name].split("/")[::-1]
    hops = 0
    if links[name].startswith("/"):
        return True
    while left:
        part = left.pop()
        if part == ".." and not at:
            return True
        if part == "..":
            at.pop()
        elif part not in ("", "."):
            link = links.get("/".join([*at, part]))
            if link is None:
                at.append(part)
            elif (hops := hops + 1) > MOST_LINKS:
                # The kernel gives it up.
                return False
            else:
                left += link.split("/")[::-1]
    return False


def _parents(name: str) -> Iterator[str]:
    while name := posixpath.dirname(name):
        yield name


def _refused(name: str, why: str) -> Problem:
    return Problem("invalid_argument", f"context, {name[:200]!r}: {why}", field="context")
