"""``Commits``: makes images of running sandboxes."""

import asyncio
import errno
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from itertools import chain, repeat
from pathlib import Path
from typing import Any, BinaryIO, Final, NoReturn

import structlog

from controlplane.clock import Clock
from controlplane.cluster.engine.client import EngineClient, Missing
from controlplane.cluster.engine.commit.archive import Archive, archive
from controlplane.cluster.engine.commit.changes import Changes, Inspection, changes_of
from controlplane.cluster.engine.commit.kept import KeptImages
from controlplane.cluster.engine.commit.names import kept_name
from controlplane.cluster.engine.commit.room import Room, Rooms
from controlplane.cluster.engine.containers import SIDECAR, TARGET, name
from controlplane.cluster.finish import finish
from controlplane.cluster.protocol import Committed
from controlplane.errors import Code, Problem
from controlplane.images import MAX_LAYERS, parse

# Reading is bounded by the disk, and sandboxes need it too.
MOST_AT_ONCE: Final = 2
# A sandbox that stands still for a minute is taken for one that hangs.
STILL_S: Final = 45.0
# To let a sandbox go on; the engine takes a tenth of a second.
GO_ON_S: Final = 10.0
# Between further tries; the last one holds for all after it.
GO_ON_AGAIN_S: Final = (1.0, 2.0, 5.0, 10.0, 30.0)
# Of a layer in the engine's folders while it is loaded: what it was sent, and what it unpacks.
ENGINE_COPIES: Final = 2
# For files that may be large and should outlive nothing; a folder in memory would take what sandboxes need.
LARGE_FILES: Final = "/var/tmp"  # noqa: S108 - the file has no name
CHUNK_BYTES: Final = 1 << 20
# What a control plane says that has run out of something: the same call may work later.
_SCARCE: Final = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN}  # EAGAIN: of processes
)
_PROGRAM: Final = Path(__file__).with_name("layer.py")
_CODES: Final[Mapping[str, Code]] = {
    "too_large": "payload_too_large",
    "no_space": "capacity_unavailable",
    "unsupported": "unsupported",
    "gone": "sandbox_lost",
}


class Commits:
    """Commits sandboxes of one engine; see ``cluster.protocol.Commits``.

    Args:
        client: of the engine.
        place: see ``Commits.place``.
        clock: tells when an image was made.
    """

    def __init__(self, client: EngineClient, place: str, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self.place = place
        self.kept = KeptImages(client)
        self._under_way: set[str] = set()
        self._standing: dict[str, asyncio.Task[None]] = {}
        self._places = asyncio.Semaphore(MOST_AT_ONCE)
        self._rooms = Rooms()
        self._log = structlog.get_logger("commits")

    async def close(self) -> None:
        """Ends what is tried again; the next control plane lets go on what stands still then."""
        tasks = set(self._standing.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def commit(self, sandbox_id: str, target: str, max_bytes: int, *, squash: bool = False) -> Committed:
        """See ``Commits.commit``; at most two at once, further ones wait."""
        with self._alone(sandbox_id), _scarce(sandbox_id):
            async with self._places:
                seen = await self._running(sandbox_id)
                base = await self._client.call("GET", f"images/{seen['Image']}/json")
                changes = changes_of(sandbox_id, seen)
                if squash:
                    changes = changes.squashed(sandbox_id, base)
                _check_layers(sandbox_id, base, changes.layers)
                copies = {LARGE_FILES: 1, changes.uppers[0]: ENGINE_COPIES}
                async with self._rooms.taken(copies, max_bytes) as found:
                    if found.layer_bytes <= 0:
                        raise _no_room(sandbox_id, found)
                    with tempfile.TemporaryFile(dir=LARGE_FILES) as file:
                        async with self._still(sandbox_id):
                            layer = await _read(sandbox_id, changes, file.fileno(), max_bytes, found)
                        await self._load(base, layer, file, target, squashed=changes.layers)
        volumes = (f"{one}: a volume that the image declares" for one in changes.volumes)
        return Committed(target, layer["image"], layer["size_bytes"], (*volumes, *layer["skipped"]))

    async def let_go_on(self, sandbox_id: str, sidecar: Inspection | None) -> None:
        """Lets a sandbox go on that a commit of an earlier control plane has left standing still."""
        if sidecar is not None and sidecar.get("State", {}).get("Paused") and not self._held(sandbox_id):
            self._log.warning("a sandbox stood still, it goes on", sandbox_id=sandbox_id)
            await self._go_on(sandbox_id)

    @contextmanager
    def _alone(self, sandbox_id: str) -> Iterator[None]:
        if self._held(sandbox_id):
            raise Problem("conflict", f"{sandbox_id} is being committed already", sandbox_id=sandbox_id)
        self._under_way.add(sandbox_id)
        try:
            yield
        finally:
            self._under_way.discard(sandbox_id)

    def _held(self, sandbox_id: str) -> bool:
        """Whether it is held still here; a late resume must not fall into the next commit."""
        return sandbox_id in self._under_way or sandbox_id in self._standing

    async def _running(self, sandbox_id: str) -> Inspection:
        try:
            seen: Inspection = await self._client.call("GET", f"containers/{name(sandbox_id, TARGET)}/json")
        except Missing:
            _lost(sandbox_id, "the engine does not have it")
        if not seen.get("State", {}).get("Running"):
            _lost(sandbox_id, "its container does not run")
        return seen

    @asynccontextmanager
    async def _still(self, sandbox_id: str) -> AsyncIterator[None]:
        """Holds the sandbox's processes still: all of them are in the sidecar's control group."""
        try:
            await finish(asyncio.create_task(self._pause(sandbox_id)))
            async with asyncio.timeout(STILL_S):
                yield
        except TimeoutError as late:
            detail = f"{sandbox_id} would stand still for more than {STILL_S:.0f} s: it has changed too much"
            raise Problem("payload_too_large", detail, sandbox_id=sandbox_id) from late
        finally:
            await finish(asyncio.create_task(self._go_on(sandbox_id)))

    async def _pause(self, sandbox_id: str) -> None:
        try:
            await self._client.call("POST", f"containers/{name(sandbox_id, SIDECAR)}/pause")
        except Missing:
            _lost(sandbox_id, "the engine does not have its sidecar")

    async def _go_on(self, sandbox_id: str) -> None:
        try:
            async with asyncio.timeout(GO_ON_S):
                await self._client.call("POST", f"containers/{name(sandbox_id, SIDECAR)}/unpause")
        except Missing:
            return  # it was deleted meanwhile
        except (Problem, TimeoutError) as problem:
            self._log.warning("a sandbox may stand still, tried again", sandbox_id=sandbox_id, detail=str(problem))
            if sandbox_id not in self._standing:
                task = asyncio.create_task(self._go_on_late(sandbox_id), name=f"go on {sandbox_id}")
                self._standing[sandbox_id] = task
                task.add_done_callback(lambda _: self._standing.pop(sandbox_id, None))

    async def _go_on_late(self, sandbox_id: str) -> None:
        """Tries until the sandbox does not stand still any more, or is gone."""
        container = f"containers/{name(sandbox_id, SIDECAR)}"
        for pause_s in chain(GO_ON_AGAIN_S, repeat(GO_ON_AGAIN_S[-1])):
            await asyncio.sleep(pause_s)
            try:
                async with asyncio.timeout(GO_ON_S):
                    seen = await self._client.call("GET", f"{container}/json")
                    if seen.get("State", {}).get("Paused"):
                        await self._client.call("POST", f"{container}/unpause")
            except Missing:
                return
            except (Problem, TimeoutError) as problem:
                self._log.warning("a sandbox may stand still", sandbox_id=sandbox_id, detail=str(problem))
            else:
                self._log.info("a sandbox goes on", sandbox_id=sandbox_id)
                return

    async def _load(
        self, base: Inspection, layer: dict[str, Any], file: BinaryIO, target: str, *, squashed: int
    ) -> None:
        created = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC).isoformat().replace("+00:00", "Z")
        kept = kept_name(target, layer["size_bytes"])
        made = archive(base, layer["digest"], layer["size_bytes"], name=kept, created=created, squashed=squashed)
        layer["image"] = made.digest
        try:
            await self._client.load(_chunks(made, file))
            reference = parse(target)
            tag = {"repo": reference.name, "tag": reference.tag}
            await self._client.call("POST", f"images/{kept.replace('{id}', made.digest.partition(':')[2])}/tag", tag)
        except BaseException:
            # With all its names, whether or not the last one was given to it before the call was cancelled.
            await finish(asyncio.create_task(self._remove(made.digest)))
            raise

    async def _remove(self, image: str) -> None:
        try:
            await self._client.call("DELETE", f"images/{image}", {"force": True})
        except Missing:
            return
        except Problem as problem:
            self._log.warning("a part of an image is left", image=image, detail=problem.detail)


@contextmanager
def _scarce(sandbox_id: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in _SCARCE:
            raise
        detail = f"no image of {sandbox_id} was made, this machine has run out of something: {error.strerror}"
        raise Problem("capacity_unavailable", detail, sandbox_id=sandbox_id) from error


def _no_room(sandbox_id: str, found: Room) -> Problem:
    detail = f"no image of {sandbox_id} was made: {found.why}"
    return Problem("capacity_unavailable", detail, sandbox_id=sandbox_id)


async def _read(sandbox_id: str, changes: Changes, file: int, max_bytes: int, found: Room) -> dict[str, Any]:
    """What the program ``layer`` says of the layer that it has written to ``file``."""
    request = {
        "uppers": changes.uppers,
        "lowers": changes.lowers,
        "mounts": changes.mounts,
        "file": file,
        "max_bytes": min(max_bytes, found.layer_bytes),
    }
    answer = await _answer(json.dumps(request).encode(), file)
    if answer.get("reason") == "too_large" and found.layer_bytes < max_bytes:
        raise _no_room(sandbox_id, found)
    if "reason" in answer:
        code = _CODES.get(answer["reason"], "internal")
        raise Problem(code, f"no image of {sandbox_id} was made: {answer['detail']}", sandbox_id=sandbox_id)
    return answer


async def _answer(request: bytes, file: int) -> dict[str, Any]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",
        "-S",
        str(_PROGRAM),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        pass_fds=(file,),
        start_new_session=True,
    )
    try:
        said, words = await process.communicate(request)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    try:
        answer: dict[str, Any] = json.loads(said)
    except ValueError:
        last = words.decode(errors="replace").strip().rpartition("\n")[2]
        raise Problem("internal", f"the program that writes layers ended with {process.returncode}: {last}") from None
    return answer


async def _chunks(made: Archive, file: BinaryIO) -> AsyncIterator[bytes]:
    yield made.head
    file.seek(0)
    # A read of what was just written, so from memory; large files wait for the disk here, a chunk at a time.
    while data := await asyncio.to_thread(file.read, CHUNK_BYTES):
        yield data
    yield made.tail


def _check_layers(sandbox_id: str, base: Inspection, squashed: int) -> None:
    count = len((base.get("RootFS") or {}).get("Layers") or ()) - squashed
    if count >= MAX_LAYERS:
        detail = f"the image of {sandbox_id} has {count} layers already, and engines take {MAX_LAYERS} at most"
        raise Problem("unsupported", detail, value=f"an image of fewer than {MAX_LAYERS} layers")


def _lost(sandbox_id: str, why: str) -> NoReturn:
    raise Problem("sandbox_lost", f"{sandbox_id} cannot be made an image: {why}", sandbox_id=sandbox_id)
