"""Checks the archive of a tree that a solver has made, while it passes, and writes it anew. Pure.

The archive is made by the platform of what the solver has left, and is taken for hostile all the same. What comes out
is written here, header by header, of names and links that were checked: nothing else of what came in gets through.
"""

from __future__ import annotations

import tarfile
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from rollbox.errors import Internal
from rollbox.files import paths
from rollbox.files.info import TransferReport

RefusedReason: TypeAlias = Literal[
    "too_many_bytes",
    "too_many_entries",
    "path_too_long",
    "not_a_tree",
    "bad_name",
    "duplicate",
    "bad_kind",
    "unreadable",
]
_BLOCK = tarfile.BLOCKSIZE
_PIECE_BYTES = 2**16
_LONG = {tarfile.GNUTYPE_LONGNAME: "name", tarfile.GNUTYPE_LONGLINK: "link"}
# No link of Linux has a longer target.
_MOST_LINK_BYTES = 4096
_SET_ID_BITS = 0o6000


class Refused(Exception):  # noqa: N818 - the sample is refused
    """Why a tree is not handed over.

    Attributes:
        reason: for programs.
    """

    def __init__(self, reason: RefusedReason, detail: str) -> None:
        super().__init__(detail)
        self.reason: RefusedReason = reason


@dataclass(slots=True)
class Budget:
    """What all taken trees together may still have."""

    size_bytes: int
    entries: int
    path_bytes: int


@dataclass(frozen=True, slots=True)
class Rules:
    """What of a tree is not taken.

    Attributes:
        trees: absolute paths that are taken; links may lead into them.
        links_to: further absolute paths that links may lead to.
        own: absolute paths that are the grader's own, with all below them.
    """

    trees: tuple[str, ...]
    links_to: tuple[str, ...] = ()
    own: tuple[str, ...] = ()


@dataclass(slots=True)
class Taken:
    """What was handed over.

    Attributes:
        count: files, directories and links.
        size_bytes: of their data.
        dropped: path -> why it was left out; the first 100 only.
        dropped_count: how many were left out in all.
        missing: paths that the solver does not have.
    """

    report: TransferReport = field(default_factory=TransferReport)
    missing: list[str] = field(default_factory=list)

    count = property(lambda self: self.report.count)
    size_bytes = property(lambda self: self.report.size_bytes)
    dropped = property(lambda self: dict(self.report.skipped))
    dropped_count = property(lambda self: self.report.skipped_count)


class CheckedTree:
    """The archive of what is below one directory, or of one file in it: `feed` it, then `finish` it."""

    def __init__(
        self, root: str, rules: Rules, budget: Budget, report: TransferReport, only: str | None = None
    ) -> None:
        """Begin.

        Args:
            root: the absolute path of the directory, in the solver and in the grader.
            rules: what is left out.
            budget: is used up.
            report: counts what passes and names what is left out.
            only: the one name that it may have; None: any.
        """
        self._root = root.rstrip("/")
        self._rules, self._budget, self._report, self._only = rules, budget, report, only
        self._kinds: dict[str, bytes] = {}
        self._out = bytearray()
        self._held = bytearray()
        self._reading = self._archive()
        self._wanted = next(self._reading)
        self._done = False

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes of the archive; returns those of the new one.

        Raises:
            Refused: the tree is not taken.
            Internal: the archive is damaged.
        """
        self._held += data
        at = 0
        while not self._done and len(self._held) - at >= self._wanted:
            piece = bytes(self._held[at : at + self._wanted])
            at += self._wanted
            try:
                self._wanted = self._reading.send(piece)
            except StopIteration:
                self._done = True
        self._held = bytearray() if self._done else self._held[at:]
        out, self._out = bytes(self._out), bytearray()
        return out

    def finish(self) -> bytes:
        """Return the end of the new archive.

        Raises:
            Internal: the old one has not come to its end.
        """
        if not self._done:
            raise Internal("the archive of what was to be graded broke off before its end")
        return bytes(2 * _BLOCK)

    def _archive(self) -> Generator[int, bytes, None]:
        long: dict[str, str] = {}
        while any(block := (yield _BLOCK)):
            try:
                entry = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
            except tarfile.TarError as error:
                raise Internal(f"the archive of what was to be graded is damaged: {error}") from error
            if entry.type in _LONG:
                long[_LONG[entry.type]] = yield from self._long(entry)
                continue
            name, link = long.get("name", entry.name), long.get("link", entry.linkname)
            long = {}
            passes = self._passes(name, link, entry)
            if passes:
                self._out += self._header(name, link, entry)
                self._report.count += 1
            yield from self._data(entry, passes)

    def _long(self, entry: tarfile.TarInfo) -> Generator[int, bytes, str]:
        most = self._budget.path_bytes if entry.type == tarfile.GNUTYPE_LONGNAME else _MOST_LINK_BYTES
        if not 0 < entry.size <= most + 1:
            raise Refused("path_too_long", f"a name of {entry.size} bytes is over {most}")
        padded = yield entry.size + -entry.size % _BLOCK
        text = padded[: entry.size].removesuffix(b"\0")
        if b"\0" in text:
            raise Refused("bad_name", "a name holds a NUL byte")
        return paths.decoded(text)

    def _data(self, entry: tarfile.TarInfo, passes: bool) -> Generator[int, bytes, None]:
        left = entry.size if entry.type == tarfile.REGTYPE else 0
        padding = -left % _BLOCK
        if passes:
            self._report.size_bytes += left
        while left:
            piece = yield min(left, _PIECE_BYTES)
            left -= len(piece)
            if passes:
                self._out += piece
        if padding:
            yield padding
            self._out += bytes(padding) if passes else b""

    def _passes(self, name: str, link: str, entry: tarfile.TarInfo) -> bool:
        """Whether an entry is taken; raises Refused where nothing is."""
        parts, path = self._named(name, entry)
        self._count(path, entry)
        parent = "/".join(parts[:-1])
        above = self._kinds.get(parent, tarfile.DIRTYPE if not parent else None)
        if above not in (tarfile.DIRTYPE, b""):
            raise Refused("not_a_tree", f"{paths.shown(path)} comes below something that is no directory")
        if "/".join(parts) in self._kinds:
            raise Refused("duplicate", f"{paths.shown(path)} comes twice")
        why = self._why_not(parts, path, link, entry) if above else ""
        # Of what is left out, what is below goes too, and is not told one by one.
        if why:
            self._report.skip(path, why)
        self._kinds["/".join(parts)] = entry.type if why is None else b""
        return why is None

    def _named(self, name: str, entry: tarfile.TarInfo) -> tuple[list[str], str]:
        shown = paths.shown(name)
        if entry.type not in (tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE) or entry.size < 0:
            raise Refused("bad_kind", f"{shown} is a hard link, a device or another kind that no tree has here")
        if name.startswith("/"):
            raise Refused("bad_name", f"{shown} is an absolute name")
        parts = name.removesuffix("/").split("/")
        if any(part in ("", ".", "..") for part in parts):
            raise Refused("bad_name", f"{shown} is no plain name")
        if self._only is not None and parts != [self._only]:
            raise Refused("not_a_tree", f"{shown} comes where one file was asked for")
        return parts, f"{self._root}/{'/'.join(parts)}"

    def _count(self, path: str, entry: tarfile.TarInfo) -> None:
        length = len(paths.encoded("path", path))
        if length > self._budget.path_bytes:
            raise Refused("path_too_long", f"a path of {length} bytes is over {self._budget.path_bytes}")
        self._budget.entries -= 1
        if self._budget.entries < 0:
            raise Refused("too_many_entries", "the taken trees have more files, directories and links than max_entries")
        if entry.type == tarfile.REGTYPE:
            self._budget.size_bytes -= entry.size
        if self._budget.size_bytes < 0:
            raise Refused("too_many_bytes", f"the taken trees have more data than max_bytes, with {paths.shown(path)}")

    def _why_not(self, parts: list[str], path: str, link: str, entry: tarfile.TarInfo) -> str | None:
        """Why an entry is left out; None: it is taken."""
        if any(ord(letter) < 32 or ord(letter) == 127 for letter in parts[-1]):
            return "its name has control characters"
        if any(covers(one, path) for one in self._rules.own):
            return "is the grader's own"
        if entry.type != tarfile.DIRTYPE and any(covers(path, one) for one in self._rules.own):
            return "stands where a directory of the grader's own files is"
        if entry.type == tarfile.SYMTYPE and not self._stays(link, path):
            return f"a link that leads out of what is taken: {paths.shown(link)}"
        return None

    def _stays(self, link: str, path: str) -> bool:
        """Whether a link leads to what is taken, or to where links may lead.

        `..` counts at the beginning of a relative link alone, where it is the parent of a real directory; after a name,
        which may be a link itself, it may lead anywhere.
        """
        parts = [part for part in link.split("/") if part not in ("", ".")]
        climbs = 0
        while not link.startswith("/") and climbs < len(parts) and parts[climbs] == "..":
            climbs += 1
        above = [] if link.startswith("/") else path.split("/")[1:-1]
        if ".." in parts[climbs:] or climbs > len(above) or not link:
            return False
        target = "/" + "/".join([*above[: len(above) - climbs], *parts[climbs:]])
        return any(covers(tree, target) for tree in (*self._rules.trees, *self._rules.links_to))

    def _header(self, name: str, link: str, entry: tarfile.TarInfo) -> bytes:
        made = tarfile.TarInfo(name.removesuffix("/"))
        made.type, made.size = entry.type, entry.size if entry.type == tarfile.REGTYPE else 0
        made.mode, made.mtime = entry.mode & 0o777, max(0, int(entry.mtime))
        if entry.type == tarfile.SYMTYPE:
            made.linkname = link
        elif entry.type == tarfile.DIRTYPE:
            # The grader has to be able to fill it.
            made.mode |= 0o700
        elif entry.mode & _SET_ID_BITS:
            self._report.skip(f"{self._root}/{name}", "the set-user-ID and set-group-ID bits of its mode")
        return made.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")


def covers(tree: str, path: str) -> bool:
    """Whether a path is the one of a tree, or below it; both are absolute and plain."""
    return path == tree or path.startswith(f"{tree.rstrip('/')}/")
