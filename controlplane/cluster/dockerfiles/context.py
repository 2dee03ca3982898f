"""The context of a build as an archive: checked as one of a stranger, and what goes beside it to the builder."""

import io
import posixpath
import tarfile
from collections.abc import Mapping
from typing import BinaryIO, Final

from controlplane.errors import Problem

MOST_FILES: Final = 100_000
MOST_BYTES: Final = 1 << 30


def check(file: BinaryIO) -> None:
    """Reads the archive once, from its beginning.

    Raises:
        Problem: invalid_argument: it is none, or has what no context may have; payload_too_large.
    """
    file.seek(0)
    seen = total_bytes = 0
    try:
        with tarfile.open(fileobj=file, mode="r|") as archive:
            for entry in archive:
                seen, total_bytes = seen + 1, total_bytes + entry.size
                _check_entry(entry)
                if seen > MOST_FILES or total_bytes > MOST_BYTES:
                    detail = f"a context has at most {MOST_FILES} files and {MOST_BYTES} bytes"
                    raise Problem("payload_too_large", detail, reason="context_too_large")
    except (tarfile.TarError, EOFError, ValueError) as error:
        raise Problem("invalid_argument", f"the context is no tar archive: {error}", field="context") from error


def beside(files: Mapping[str, bytes]) -> bytes:
    """The beginning of an archive, which goes on with that of a context."""
    made = io.BytesIO()
    for name, content in files.items():
        entry = tarfile.TarInfo(name)
        entry.size, entry.mode = len(content), 0o600
        made.write(entry.tobuf(tarfile.PAX_FORMAT) + content + b"\0" * (-len(content) % tarfile.BLOCKSIZE))
    return made.getvalue()


def _check_entry(entry: tarfile.TarInfo) -> None:
    name = entry.name
    if not (entry.isfile() or entry.isdir() or entry.issym()) or entry.issparse():
        raise _refused(name, "it is no file, folder or symbolic link")
    if not name or name.startswith("/") or ".." in name.split("/"):
        raise _refused(name, "its name leads out of the context")
    if entry.issym() and leads_out(name, entry.linkname):
        raise _refused(name, f"it is a link out of the context, to {entry.linkname[:200]!r}")


def leads_out(name: str, link: str) -> bool:
    """Whether a symbolic link in a context leads out of it."""
    return link.startswith("/") or posixpath.normpath(posixpath.join(posixpath.dirname(name), link)).startswith("..")


def _refused(name: str, why: str) -> Problem:
    return Problem("invalid_argument", f"context, {name[:200]!r}: {why}", field="context")
