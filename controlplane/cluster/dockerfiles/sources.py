"""What COPY and ADD take: files of the context, of a stage or of an image, documents inline, and addresses. Pure."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final, Literal
from urllib.parse import urlsplit

from controlplane.cluster.dockerfiles import flags as reading
from controlplane.cluster.dockerfiles.dockerfile import Document, Instruction
from controlplane.cluster.dockerfiles.flags import Flags
from controlplane.cluster.dockerfiles.stages import FILES, Image, Step

MOST_FILES: Final = 1_000
_FLAGS: Final = {"COPY": {"from", "chown", "chmod", "link"}, "ADD": {"checksum", "chown", "chmod", "link"}}
_ADDRESS: Final = re.compile(r"https?://[^\s\"'\\$]+", re.I)
# What the builder itself would take for one, or would still have to interpret.
_REMOTE: Final = re.compile(r"://|^git@|^(www\.)?(github|gitlab|bitbucket)\.(com|org)/", re.I)
_OPAQUE: Final = re.compile(r"[\"'\\$]")
_CHECKSUM: Final = re.compile(r"(?P<kind>sha256|sha384|sha512):(?P<digits>[0-9a-f]+)")
_DIGITS: Final = {"sha256": 64, "sha384": 96, "sha512": 128}
_FILE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+~@=-]{0,199}")
# Of what is inline, as with Docker; what comes from an address is its owner's alone.
MODE: Final = 0o644
FETCHED: Final = "600"


@dataclass(frozen=True, slots=True)
class File:
    """A file that is made for a build.

    Attributes:
        path: in ``FILES``.
        content: of a document inline.
        mode: its rights.
        address: from which it is fetched; empty: it is inline.
        checksum: what the content of an address has to have, ``sha256:...``; empty: whatever comes.
        line: of the Dockerfile.
    """

    path: str
    content: bytes = b""
    mode: int = MODE
    address: str = ""
    checksum: str = ""
    line: int = 0


class Sources:
    """Judges COPY and ADD.

    Args:
        place: what a source of ``--from`` is: the name of a stage, or an image.
        values: the variables at the line; None: they are not known yet, and words that have some are left for later.
        text: a document with its variables.
    """

    def __init__(
        self,
        place: Callable[[Instruction, str], str | Image],
        values: Callable[[Instruction, str], str | None],
        text: Callable[[Instruction, Document], str],
    ) -> None:
        self._place = place
        self._values = values
        self._text = text
        self.files: list[File] = []

    def steps(self, one: Instruction) -> list[Step]:
        """The steps that stand for an instruction: one for sources of each kind that follow one another."""
        flags, rest = reading.read(one)
        self._check(one, flags)
        kept = [flag for flag in flags if flag[0] not in ("link", "checksum", "from")]
        place = next((self._place(one, value or "") for name, value in flags if name == "from"), None)
        words, as_list = reading.words(rest)
        if len(words) < 2:
            raise one.invalid(f"{one.word} names a source and a destination")
        *sources, to = words
        kinds = [self._kind(one, word) for word in sources]
        if not as_list and (odd := [word for _, word in kinds if re.search(r"\s", word)]):
            raise one.invalid(f"{odd[0][:100]!r} is more than one word: write the instruction as a list")
        if {"plain"} == {kind for kind, _ in kinds} and sources == [word for _, word in kinds]:
            # Word for word, whatever its quotes are.
            return [_step(one.word, kept, place, rest)]
        return list(self._groups(one, kept, kinds, to, as_list=as_list))

    def made(self, one: Instruction, name: str, content: bytes, mode: int) -> str:
        """Makes a file for the build.

        Args:
            one: the instruction that has it.
            name: of the file.
            content: of it.
            mode: its rights.

        Returns:
            its path.
        """
        return self._add(one, File(f"{len(self.files)}/{name}", content, mode, line=one.line))

    def _groups(
        self, one: Instruction, flags: Flags, kinds: Sequence[tuple[str, str]], to: str, *, as_list: bool
    ) -> Iterator[Step]:
        if len(kinds) > 1 and not to.endswith("/"):
            raise one.invalid("with more than one source the destination is a folder, with / at its end")
        checksum = next((value or "" for name, value in reading.read(one)[0] if name == "checksum"), "")
        for kind, found in groupby(kinds, key=lambda pair: pair[0]):
            words = [word for _, word in found]
            if kind == "plain":
                yield _step(one.word, flags, None, reading.written([*words, to], as_list=as_list))
                continue
            if kind == "inline":
                paths, mode = [self._document(one, word) for word in words], flags
            else:
                paths = [self._fetched(one, word, to, checksum) for word in words]
                mode = flags if any(name == "chmod" for name, _ in flags) else [("chmod", FETCHED), *flags]
            yield _step("COPY", mode, FILES, reading.written([*paths, to], as_list=as_list))

    def _kind(self, one: Instruction, word: str) -> tuple[Literal["plain", "inline", "address"], str]:
        if any(document.word == word for document in one.documents):
            return "inline", word
        if one.word == "COPY":
            return "plain", word
        plain = word if not _OPAQUE.search(word) else self._values(one, word)
        if plain is None:
            return "plain", "later"
        if _ADDRESS.fullmatch(plain) and not re.search(r"\.git(#|$)", plain):
            return "address", plain
        if not plain or _OPAQUE.search(plain) or _REMOTE.search(plain):
            instead = "have it in the context, or fetch it in a RUN: files of the context and of http(s) are added here"
            raise one.unsupported(f"ADD of {plain[:100]!r}", instead)
        return "plain", plain

    def _document(self, one: Instruction, word: str) -> str:
        found = next(document for document in one.documents if document.word == word)
        return self.made(one, found.name, self._text(one, found).encode("utf-8", "surrogateescape"), MODE)

    def _fetched(self, one: Instruction, address: str, to: str, checksum: str) -> str:
        parts = urlsplit(address)
        if not parts.hostname or parts.username is not None:
            raise one.unsupported(f"ADD of {address[:100]!r}", "an address is http(s)://HOST/..., without a login")
        name = parts.path.rpartition("/")[2]
        if not _FILE.fullmatch(name):
            if to.endswith(("/", ".")):
                raise one.invalid(f"{address[:100]!r} names no file: name it in the destination")
            name = "file"
        return self._add(one, File(f"{len(self.files)}/{name}", address=address, checksum=checksum, line=one.line))

    def _add(self, one: Instruction, file: File) -> str:
        if len(self.files) >= MOST_FILES:
            raise one.unsupported("too many files", f"{MOST_FILES} are inline or fetched at most")
        self.files.append(file)
        return file.path

    def _check(self, one: Instruction, flags: Flags) -> None:
        names = [name for name, _ in flags]
        if odd := [name for name in names if name not in _FLAGS[one.word]]:
            if (one.word, odd[0]) == ("ADD", "from"):
                raise one.invalid("ADD has no --from")
            told = ", ".join(f"--{name}" for name in sorted(_FLAGS[one.word]))
            raise one.unsupported(f"{one.word} --{odd[0]}", f"it has {told} here")
        if len(names) != len(set(names)):
            raise one.invalid("it has a flag twice")
        if "from" in names and one.documents:
            raise one.invalid("a document inline is of no stage: leave --from out")
        if "checksum" in names:
            self._check_checksum(one, dict(flags)["checksum"] or "")

    def _check_checksum(self, one: Instruction, checksum: str) -> None:
        found = _CHECKSUM.fullmatch(checksum)
        if found is None or len(found["digits"]) != _DIGITS[found["kind"]]:
            raise one.invalid("--checksum is sha256:, sha384: or sha512: with the digits of it")
        sources = reading.words(reading.read(one)[1])[0][:-1]
        if len(sources) != 1 or self._kind(one, sources[0]) == ("plain", sources[0]):
            raise one.invalid("--checksum is for an ADD of one address")


def _step(word: str, flags: Flags, place: str | Image | None, rest: str) -> Step:
    if place is None:
        return (reading.joined(word, flags, rest),)
    return (f"{reading.joined(word, flags, '')} --from=", place, f" {rest}")
