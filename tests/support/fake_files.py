"""The fake gateway's files: those of a local folder, with breaks where a test asks."""

# Names are bytes here, which pathlib does not take; and a folder of a test answers at once.
# ruff: noqa: ASYNC230, ASYNC240, PTH101, PTH103, PTH108, PTH112, PTH115, PTH116, PTH118, PTH120, PTH123

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import os
import shutil
import stat
import struct
import tarfile
from base64 import b64encode
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from aiohttp import web

FRAME = struct.Struct(">BI")
KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "symlink"}


class Refused(Exception):  # noqa: N818
    """A problem to answer."""

    def __init__(self, code: str, detail: str, **details: str) -> None:
        super().__init__(detail)
        self.code, self.detail, self.details = code, detail, details


@dataclass
class FakeFiles:
    """Files below `root`.

    Attributes:
        root: what the sandbox calls /.
        cuts: for each read: after how many bytes of data its connection breaks; None or none left: never.
        wrong_digest: tell another digest than that of the data.
        problem_at_end: end a read with this problem instead of the digest.
        archive: give this instead of a real archive.
        hold_writes: a write that has come waits for ever; `holding` says that one has.
        changes: what a watch tells; None ends its connection.
    """

    root: Path = Path("/nonexistent")
    cuts: deque[int | None] = field(default_factory=deque)
    wrong_digest: bool = False
    problem_at_end: dict[str, Any] | None = None
    archive: bytes | None = None
    hold_writes: bool = False
    holding: asyncio.Event = field(default_factory=asyncio.Event)
    changes: asyncio.Queue[dict[str, Any] | None] = field(default_factory=asyncio.Queue)
    piece_bytes: int = 2**16
    queries: list[dict[str, bytes]] = field(default_factory=list)

    def query(self, request: web.Request) -> dict[str, bytes]:
        """The query with values as bytes."""
        pairs = parse_qsl(request.rel_url.raw_query_string, encoding="utf-8", errors="surrogateescape")
        found = {name: value.encode("utf-8", "surrogateescape") for name, value in pairs}
        self.queries.append(found)
        return found

    def place(self, raw: bytes) -> bytes:
        """Where a path of the sandbox is here. Its processes are those of this machine."""
        if raw.startswith(b"/proc/"):
            return raw
        return os.path.join(os.fsencode(self.root), raw.lstrip(b"/"))

    def info(self, raw: bytes, *, follow: bool = False, sha256: str | None = None) -> dict[str, Any]:
        """FileInfo JSON."""
        place = self.place(raw)
        try:
            found = os.stat(place, follow_symlinks=follow)
        except FileNotFoundError:
            raise Refused("file_not_found", f"{raw!r} does not exist", path=raw.decode("utf-8", "replace")) from None
        body: dict[str, Any] = {
            "kind": KINDS.get(stat.S_IFMT(found.st_mode), "other"),
            "size_bytes": found.st_size,
            "mode": stat.S_IMODE(found.st_mode),
            "uid": found.st_uid,
            "gid": found.st_gid,
            "modified_at_ms": found.st_mtime_ns // 10**6,
            "link_target": os.fsdecode(os.readlink(place)) if stat.S_ISLNK(found.st_mode) else None,
            "sha256": sha256,
        }
        try:
            body["path"] = raw.decode()
        except UnicodeDecodeError:
            body["path_base64"] = b64encode(raw).decode()
        return body

    async def read(self, request: web.Request) -> web.StreamResponse:
        """Answer a read in frames."""
        query = self.query(request)
        info = self.info(query["path"], follow=True)
        if info["kind"] == "directory":
            raise Refused("invalid_argument", "it is a directory", reason="is_directory")
        offset, length = int(query["offset"]), int(query.get("length", 0))
        with open(self.place(query["path"]), "rb") as file:
            file.seek(offset)
            data = file.read(length or -1)
        return await self._framed(request, data, info)

    async def read_archive(self, request: web.Request) -> web.StreamResponse:
        """Answer a tar stream in frames."""
        raw = self.query(request)["path"]
        data = self.archive
        if data is None:
            made = io.BytesIO()
            with tarfile.open(fileobj=made, mode="w", format=tarfile.GNU_FORMAT, errors="surrogateescape") as tar:
                tar.add(os.fsdecode(self.place(raw)), arcname=".")
            data = made.getvalue()
        return await self._framed(request, data, None)

    async def _framed(self, request: web.Request, data: bytes, info: dict[str, Any] | None) -> web.StreamResponse:
        assert request.headers["Accept"] == "application/vnd.rollbox.frames"
        response = web.StreamResponse(headers={"Content-Type": "application/vnd.rollbox.frames"})
        await response.prepare(request)
        budget = self.cuts.popleft() if self.cuts else None
        if info is not None:
            await response.write(_frame(3, json.dumps(info).encode()))
        for start in range(0, len(data), self.piece_bytes):
            piece = data[start : start + self.piece_bytes]
            if budget is not None and start + len(piece) > budget:
                await response.write(_frame(0, piece)[: max(1, budget - start)])
                assert request.transport is not None
                # Let what was written leave before the break.
                await asyncio.sleep(0)
                request.transport.close()
                return response
            await response.write(_frame(0, piece))
        if self.problem_at_end is not None:
            await response.write(_frame(2, json.dumps(self.problem_at_end).encode()))
        else:
            digest = hashlib.sha256(b"other" if self.wrong_digest else data).hexdigest()
            await response.write(_frame(1, json.dumps({"sha256": digest, "size_bytes": len(data)}).encode()))
        await response.write_eof()
        return response

    async def write(self, request: web.Request) -> web.Response:
        """Take a file whole, then put it in its place."""
        query = self.query(request)
        data = await request.read()
        if self.hold_writes:
            self.holding.set()
            await asyncio.Event().wait()
        digest = hashlib.sha256(data).hexdigest()
        if int(query.get("size", str(len(data)).encode())) != len(data):
            raise Refused("invalid_argument", "the size is another", reason="size_mismatch")
        if query.get("sha256", digest.encode()).decode() != digest:
            raise Refused("invalid_argument", "the digest is another", reason="digest_mismatch")
        place = self.place(query["path"])
        os.makedirs(os.path.dirname(place), exist_ok=query.get("parents") == b"true")
        new = not os.path.lexists(place)
        Path(os.fsdecode(place)).write_bytes(data)
        if "mode" in query and (new or query.get("keep_mode") != b"true"):
            os.chmod(place, int(query["mode"], 8))
        if "modified_at_ms" in query:
            os.utime(place, ns=(int(query["modified_at_ms"]) * 10**6,) * 2)
        return web.json_response(self.info(query["path"], sha256="0" * 64 if self.wrong_digest else digest))

    async def write_archive(self, request: web.Request) -> web.Response:
        """Unpack a tar stream."""
        query = self.query(request)
        data = await request.read()
        place = os.fsdecode(self.place(query["path"]))
        os.makedirs(place, exist_ok=True)
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:", errors="surrogateescape", encoding="utf-8") as tar:
            members = tar.getmembers()
            tar.extractall(place)
        size = sum(member.size for member in members)
        return web.json_response({"count": len(members), "size_bytes": size, "skipped": []})

    async def stat(self, request: web.Request) -> web.Response:
        """Answer what is there."""
        query = self.query(request)
        return web.json_response(self.info(query["path"], follow=query.get("follow") != b"false"))

    async def list(self, request: web.Request) -> web.Response:
        """List a directory."""
        query = self.query(request)
        limit = int(query.get("limit", b"10000"))
        found: list[bytes] = []
        for folder, folders, files in os.walk(self.place(query["path"])):
            below = os.path.relpath(folder, self.place(query["path"]))
            found += [os.path.normpath(os.path.join(query["path"], below, name)) for name in (*folders, *files)]
            if query.get("recursive") != b"true":
                break
        entries = [self.info(raw) for raw in sorted(found)[:limit]]
        return web.json_response({"entries": entries, "truncated": len(found) > limit})

    async def mkdir(self, request: web.Request) -> web.Response:
        """Make a directory."""
        query = self.query(request)
        os.makedirs(self.place(query["path"]), exist_ok=query.get("parents") == b"true")
        return web.json_response(self.info(query["path"]))

    async def move(self, request: web.Request) -> web.Response:
        """Rename, or copy a file."""
        query = self.query(request)
        origin, target = self.place(query["from"]), self.place(query["to"])
        if os.path.lexists(target) and query.get("replace") != b"true":
            raise Refused("conflict", "something is there", reason="exists")
        act: Callable[[bytes, bytes], object] = os.replace if request.path.endswith("/move") else shutil.copy2
        act(origin, target)
        return web.json_response(self.info(query["to"]))

    async def remove(self, request: web.Request) -> web.Response:
        """Remove."""
        query = self.query(request)
        place = self.place(query["path"])
        if not os.path.lexists(place):
            if query.get("missing_ok") == b"true":
                return web.json_response({"removed": 0})
            raise Refused("file_not_found", "it does not exist")
        if os.path.isdir(place) and query.get("recursive") == b"true":
            shutil.rmtree(place)
        elif os.path.isdir(place) and not Path(os.fsdecode(place)).is_symlink():
            Path(os.fsdecode(place)).rmdir()
        else:
            os.unlink(place)
        return web.json_response({"removed": 1})

    async def watch(self, request: web.Request) -> web.StreamResponse:
        """Tell the queued changes."""
        self.query(request)
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        await response.prepare(request)
        await response.write(b'{"change": "watching", "path": "/"}\n\n')
        while (change := await self.changes.get()) is not None:
            await response.write(json.dumps(change).encode() + b"\n")
        assert request.transport is not None
        request.transport.close()
        return response


def _frame(kind: int, payload: bytes) -> bytes:
    return FRAME.pack(kind, len(payload)) + payload
