"""Writes what a container has changed as a layer of an image: a program, run while the container stands still.

    python -I -S layer.py < REQUEST

It reads the upper folder of an overlay file system, which the code in the sandbox has made, and where that is asked the
layers right below it, as one with it: nothing there is followed, executed or trusted. It has a process of its own so
that a million files cost the control plane no time, and so that it can be killed. Only the standard library is used,
since ``-S`` leaves the rest out. Format of a layer:
https://github.com/opencontainers/image-spec/blob/main/layer.md
"""

import contextlib
import errno
import hashlib
import json
import os
import stat
import sys
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

BLOCK_BYTES: Final = tarfile.BLOCKSIZE
CHUNK_BYTES: Final = 1 << 20
# Told one by one; further ones are counted.
MOST_SKIPPED: Final = 100
MAX_PATH_CHARS: Final = 160
# Each level is an open folder, and engines unpack no path that is longer than the kernel's limit.
MAX_DEPTH: Final = 256
MAX_PATH_BYTES: Final = 4000

WHITEOUT: Final = ".wh."
OPAQUE: Final = ".wh..wh..opq"
# What engines make in a container before it starts, for mounts and for themselves, where the image has nothing there.
ENGINE_PATHS: Final = (
    "/.dockerenv",
    "/dev",
    "/etc/hostname",
    "/etc/hosts",
    "/etc/mtab",
    "/etc/resolv.conf",
    "/proc",
    "/run/.containerenv",
    "/run/secrets",
    "/sys",
)
_OVERLAY: Final = "trusted.overlay."
# Of files whose data or name are in a layer below, which the upper folder alone does not tell.
_ELSEWHERE: Final = (f"{_OVERLAY}metacopy", f"{_OVERLAY}redirect")
# Kernels and security modules write these by themselves.
_AMBIENT: Final = (_OVERLAY, "security.selinux", "security.ima", "security.evm", "security.apparmor")


class RefusedError(Exception):
    """Why there is no layer: ``reason`` is ``too_large``, ``no_space``, ``unsupported`` or ``gone``."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


class Sink:
    """Writes to a file and keeps length and digest; refuses to become longer than ``max_bytes``.

    Attributes:
        path: of what is being written, for the refusal.
    """

    def __init__(self, file: int, max_bytes: int) -> None:
        self._file = file
        self._max_bytes = max_bytes
        self._digest = hashlib.sha256()
        self.size_bytes = 0
        self.path = "/"

    @property
    def digest(self) -> str:
        """Of what was written."""
        return f"sha256:{self._digest.hexdigest()}"

    def reserve(self, size_bytes: int) -> None:
        """Refuses what would not fit, before any of it is read.

        Raises:
            RefusedError: too_large, the layer would have more bytes than it may.
        """
        if self.size_bytes + size_bytes > self._max_bytes:
            raise RefusedError("too_large", f"with {shown(self.path)} it would have more than {self._max_bytes} bytes")

    def write(self, data: bytes) -> None:
        """Writes all of it."""
        self.reserve(len(data))
        view = memoryview(data)
        while view:
            view = view[os.write(self._file, view) :]
        self._digest.update(data)
        self.size_bytes += len(data)


class Layer:
    """One layer.

    Args:
        sink: where it goes.
        mounts: absolute paths at which the engine has mounted something.
        lowers: the folders of the image's own layers.
    """

    def __init__(self, sink: Sink, mounts: Iterable[str], lowers: Sequence[str]) -> None:
        self._sink = sink
        self._mounts = frozenset((*mounts, *ENGINE_PATHS))
        self._above_mounts = frozenset(above for one in self._mounts for above in _parents(one))
        self._lowers = lowers
        self._links: dict[tuple[int, int], str] = {}
        self._several = False
        self._opaque = 0  # folders above what is being written that hide what is below them
        self.skipped: list[str] = []
        self.skipped_more = 0
        self.entries = 0

    def write(self, uppers: Sequence[str]) -> None:
        """Writes all that is in some folders, of which each lies over the next one, and the end of the archive."""
        self._several = len(uppers) > 1
        with contextlib.ExitStack() as opened:
            tops: list[int] = []
            for one in uppers:
                tops.append(os.open(one, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC))
                opened.callback(os.close, tops[-1])
                if _is_opaque(tops[-1]):
                    break
            self._folder(tops, "", 0, opaque=_is_opaque(tops[-1]))
        self._sink.write(b"\0" * 2 * BLOCK_BYTES)

    def skip(self, path: str, why: str) -> None:
        """Tells what is left out; ``path`` is that in the sandbox."""
        if len(self.skipped) < MOST_SKIPPED:
            self.skipped.append(f"{shown(path)}: {why}")
        else:
            self.skipped_more += 1

    def _folder(self, folders: Sequence[int], path: str, depth: int, *, opaque: bool) -> None:
        """Writes a folder that is in several layers, the topmost first; ``opaque``: it hides what is below them."""
        top, told = folders[0], path in self._above_mounts or not path
        names = _together(folders)
        if told:
            names = {
                name: places
                for name, places in names.items()
                if not self._placeholder(folders[places[0]], name, f"{path}/{name}")
            }
        found, attributes = os.fstat(top), {name: os.getxattr(top, name) for name in os.listxattr(top)}
        if not told or opaque or not self._same_below(path, found) or (path and names):
            self._add(path or ".", found, tarfile.DIRTYPE, attributes)
        if opaque:
            self._marker(f"{path}/{OPAQUE}")
        self._opaque += opaque
        for name in sorted(names):
            self._one([folders[place] for place in names[name]], name, f"{path}/{name}", depth + 1)
        self._opaque -= opaque

    def _one(self, folders: Sequence[int], name: str, path: str, depth: int) -> None:
        """Writes what has a name in one or more layers, the topmost first."""
        folder = folders[0]
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        kind = stat.S_IFMT(found.st_mode)
        self._sink.path = path
        if name.startswith(WHITEOUT):
            self.skip(path, "its name would remove another file")
        elif _is_whiteout(found):
            parent, _, _ = path.rpartition("/")
            if self._removes(path):
                self._marker(f"{parent}/{WHITEOUT}{name}")
        elif depth > MAX_DEPTH or len(os.fsencode(path)) > MAX_PATH_BYTES:
            self.skip(path, "it is too deep")
        elif kind == stat.S_IFDIR:
            with contextlib.ExitStack() as opened:
                inner, opaque = _merged(folders, name, opened)
                self._folder(inner, path, depth, opaque=opaque)
        elif kind in (stat.S_IFREG, stat.S_IFLNK, stat.S_IFIFO):
            self._leaf(folder, name, path, found)
        else:
            self.skip(path, {stat.S_IFSOCK: "a socket"}.get(kind, "a device"))

    def _leaf(self, folder: int, name: str, path: str, found: os.stat_result) -> None:
        kind, attributes = stat.S_IFMT(found.st_mode), _attributes(folder, name)
        first = self._links.setdefault((found.st_dev, found.st_ino), path) if found.st_nlink > 1 else path
        if first != path:
            self._add(path, found, tarfile.LNKTYPE, {}, link=first.lstrip("/"))
        elif kind == stat.S_IFLNK:
            self._add(path, found, tarfile.SYMTYPE, attributes, link=os.readlink(name, dir_fd=folder))
        elif kind == stat.S_IFIFO:
            self._add(path, found, tarfile.FIFOTYPE, attributes)
        else:
            self._sink.reserve(found.st_size)
            self._add(path, found, tarfile.REGTYPE, attributes, size_bytes=found.st_size)
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            file = os.open(name, flags, dir_fd=folder)
            try:
                self._content(file, found.st_size, path)
            finally:
                os.close(file)

    def _content(self, file: int, size_bytes: int, path: str) -> None:
        left = size_bytes
        while left:
            data = os.read(file, min(left, CHUNK_BYTES))
            if not data:
                raise RefusedError("gone", f"{shown(path)} became shorter while it was read")
            self._sink.write(data)
            left -= len(data)
        self._sink.write(b"\0" * (-size_bytes % BLOCK_BYTES))

    def _marker(self, path: str) -> None:
        entry = tarfile.TarInfo(path.lstrip("/"))
        entry.mode = 0o600
        self._entry(entry)

    def _add(
        self,
        path: str,
        found: os.stat_result,
        kind: bytes,
        attributes: Mapping[str, bytes],
        *,
        link: str = "",
        size_bytes: int = 0,
    ) -> None:
        entry = tarfile.TarInfo(path.lstrip("/"))
        entry.type, entry.linkname, entry.size = kind, link, size_bytes
        entry.mode, entry.uid, entry.gid = stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid
        # Whole seconds, as engines write them: a fraction would double the length of every small file.
        entry.mtime = max(0, int(found.st_mtime))
        kept: dict[str, str] = {}
        for name, value in attributes.items():
            if name in _ELSEWHERE:
                raise RefusedError("unsupported", f"the engine keeps the data of {shown(path)} elsewhere ({name})")
            if name == "security.capability" or name.startswith("user."):
                if _recordable(name):
                    kept[f"SCHILY.xattr.{name}"] = value.decode("utf-8", "surrogateescape")
                else:
                    self.skip(path, f"its attribute {shown(name)}, whose name no archive can have")
            elif not name.startswith(_AMBIENT):
                self.skip(path, f"its attribute {shown(name)}")
        entry.pax_headers = kept
        self._entry(entry)

    def _entry(self, entry: tarfile.TarInfo) -> None:
        self.entries += 1
        self._sink.write(entry.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape"))

    def _removes(self, path: str) -> bool:
        """Whether the mark of a removal is needed. Of several layers one may have made what another has removed.

        A kernel shows such a mark as a file, where no layer below has its folder.
        """
        if not self._several:
            return True
        below = self._below(path)
        return not self._opaque and below is not None and not _is_whiteout(below)

    def _placeholder(self, folder: int, name: str, path: str) -> bool:
        """Whether the engine has made this for a mount: the image has nothing there, and there is nothing in it."""
        if path not in self._mounts and path not in self._above_mounts:
            return False
        if self._below(path) is not None:
            return False
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if not stat.S_ISDIR(found.st_mode):
            return path in self._mounts and (stat.S_ISLNK(found.st_mode) or found.st_size == 0)
        inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        try:
            return all(self._placeholder(inner, one, f"{path}/{one}") for one in _names(inner))
        finally:
            os.close(inner)

    def _same_below(self, path: str, found: os.stat_result) -> bool:
        below = self._below(path)
        return below is not None and all(
            getattr(below, field) == getattr(found, field) for field in ("st_mode", "st_uid", "st_gid")
        )

    def _below(self, path: str) -> os.stat_result | None:
        for lower in self._lowers:
            with contextlib.suppress(OSError):
                return os.lstat(f"{lower}/{path}")
        return None


def shown(text: str) -> str:
    """A name as it can be told: what cannot be printed is escaped, and the middle of a long one is left out."""
    told = "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)
    half = MAX_PATH_CHARS // 2
    return told if len(told) <= MAX_PATH_CHARS else f"{told[:half]}...{told[-half:]}"


def _recordable(name: str) -> bool:
    """Whether a pax record can have a keyword with this name: UTF-8, and ``=`` ends it."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return "=" not in name and "\0" not in name


def _names(folder: int) -> list[str]:
    with os.scandir(folder) as found:
        return sorted(one.name for one in found)


def _attributes(folder: int, name: str) -> dict[str, bytes]:
    path = f"/proc/self/fd/{folder}/{name}"
    names = os.listxattr(path, follow_symlinks=False)
    return {one: os.getxattr(path, one, follow_symlinks=False) for one in names}


def _together(folders: Sequence[int]) -> dict[str, list[int]]:
    """The names in some layers of a folder, each with the positions of the layers that have it."""
    names: dict[str, list[int]] = {}
    for position, one in enumerate(folders):
        for name in _names(one):
            names.setdefault(name, []).append(position)
    return names


def _merged(folders: Sequence[int], name: str, opened: contextlib.ExitStack) -> tuple[list[int], bool]:
    """The layers of a folder that are seen as one, and whether it hides what is below them all."""
    inner: list[int] = []
    for folder in folders:
        if not stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            return inner, True  # a file, or the mark of a removal: either hides what is below it
        one = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        opened.callback(os.close, one)
        inner.append(one)
        if _is_opaque(one):
            return inner, True
    return inner, False


def _is_whiteout(found: os.stat_result) -> bool:
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == 0


def _is_opaque(folder: int) -> bool:
    name = f"{_OVERLAY}opaque"
    return name in os.listxattr(folder) and os.getxattr(folder, name) in (b"y", b"x")


def _parents(path: str) -> list[str]:
    parts = path.strip("/").split("/")[:-1]
    return ["/" + "/".join(parts[: count + 1]) for count in range(len(parts))]


def written(request: Mapping[str, Any]) -> dict[str, Any]:
    """Does what a request says; the answer.

    Args:
        request: ``uppers``, ``lowers``, ``mounts``; ``file``: the descriptor to write to; ``max_bytes``.
    """
    sink = Sink(int(request["file"]), int(request["max_bytes"]))
    layer = Layer(sink, request["mounts"], request["lowers"])
    try:
        layer.write([str(one) for one in request["uppers"]])
    except RefusedError as refused:
        return {"reason": refused.reason, "detail": refused.detail}
    except OSError as error:
        known = {errno.ENOSPC: "no_space", errno.EDQUOT: "no_space", errno.ENOENT: "gone"}
        return {"reason": known.get(error.errno or 0, "failed"), "detail": str(error)}
    more = [f"and {layer.skipped_more} more"] if layer.skipped_more else []
    return {"digest": sink.digest, "size_bytes": sink.size_bytes, "skipped": [*layer.skipped, *more]}


if __name__ == "__main__":
    json.dump(written(json.load(sys.stdin)), sys.stdout)
