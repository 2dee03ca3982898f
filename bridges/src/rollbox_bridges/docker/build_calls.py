"""Builds: a context comes as an archive, and what the builder says goes back line by line."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import IO, Any, Final

from aiohttp import web

from rollbox import BuildOptions, BuildProgress, SandboxError
from rollbox_bridges.docker import building, contexts
from rollbox_bridges.docker.archives import plain
from rollbox_bridges.docker.asking import Query
from rollbox_bridges.docker.building import BuildWish
from rollbox_bridges.docker.dockerfiles import labelled, mapped
from rollbox_bridges.docker.engine import Engine
from rollbox_bridges.docker.references import short_id
from rollbox_bridges.docker.words import Refusal, as_refusal

_ANSWER: Final = re.compile(r"^Successfully built [0-9a-f]+\n", re.MULTILINE)
_CHUNK_BYTES: Final = 2**18
_DOCKERFILE: Final = "Dockerfile"
_MOST_DOCKERFILE_BYTES: Final = 2**22
_IGNORED: Final = ".dockerignore"
# A client that reads nothing for so long has its build ended: others wait for the turn.
_MOST_UNREAD_S: Final = 60.0


async def build(request: web.BaseRequest, engine: Engine) -> web.StreamResponse:
    """Build an image; a client that goes away ends the build.

    Cancel safety: nothing is left of a cancelled build.
    """
    query = Query(request, building.KNOWN, building.HARMLESS, building.REASONS)
    wish = building.build_of(query)
    async with engine.build_places, _folder() as folder:
        context = folder / "context"
        await _unpack(request, context, wish)
        options = await asyncio.to_thread(_options, folder, context, wish, engine)
        async with aclosing(aiter(engine.client.build(context, **options))) as told:
            return await _answered(request, engine, wish, told)


def _options(folder: Path, context: Path, wish: BuildWish, engine: Engine) -> BuildOptions:
    """The options of a build. Its Dockerfile is written anew beside the context, with the platform's names. Blocks."""
    file = folder / _DOCKERFILE
    text, args = mapped(_text(context / wish.dockerfile, wish), wish.args, engine.images.source)
    file.write_text(labelled(text, wish.labels))
    ignored = context / f"{wish.dockerfile}{_IGNORED}"
    if ignored.is_file():
        shutil.copyfile(ignored, folder / f"{_DOCKERFILE}{_IGNORED}")
    options: BuildOptions = {"file": file, "args": args}
    if wish.target:
        options["target"] = wish.target
    if engine.settings.egress is not None and not wish.offline:
        options["egress"] = engine.settings.egress
    return options


def _text(path: Path, wish: BuildWish) -> str:
    if not path.is_file():
        raise Refusal(400, f"Cannot locate specified Dockerfile: {wish.dockerfile}")
    if path.stat().st_size > _MOST_DOCKERFILE_BYTES:
        raise Refusal(413, f"{wish.dockerfile} is over the {_MOST_DOCKERFILE_BYTES} bytes that are taken")
    try:
        return path.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise Refusal(400, f"{wish.dockerfile} is no UTF-8: {error}") from error


@asynccontextmanager
async def _folder() -> AsyncIterator[Path]:
    """A folder that goes with all that is in it."""
    path = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="rollbox-build-"))
    try:
        yield path
    finally:
        await asyncio.shield(asyncio.to_thread(shutil.rmtree, path, ignore_errors=True))


async def _unpack(request: web.BaseRequest, folder: Path, wish: BuildWish) -> None:
    await asyncio.to_thread(folder.mkdir)
    alone = frozenset({wish.dockerfile, _IGNORED, f"{wish.dockerfile}{_IGNORED}"})
    with tempfile.TemporaryFile() as archive:
        await _spool(request, archive)
        await _to_its_end(asyncio.to_thread(contexts.unpack, archive, folder, alone))


async def _to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """Wait for work of a thread, also where the caller is cancelled: it writes what is removed then."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    finally:
        await asyncio.wait([task])


async def _spool(request: web.BaseRequest, archive: IO[bytes]) -> None:
    """Write the archive of a request to a file, uncompressed."""
    size_bytes = 0
    encoding = request.headers.get("Content-Encoding", "identity")
    async with aclosing(plain(request.content.iter_chunked(_CHUNK_BYTES), encoding)) as data:
        async for part in data:
            size_bytes += len(part)
            if size_bytes > contexts.MOST_ARCHIVE_BYTES:
                raise Refusal(413, f"the build context has more than {contexts.MOST_BYTES >> 20} MiB")
            await asyncio.to_thread(archive.write, part)
    if not size_bytes:
        raise Refusal(400, "the build context is empty")


async def _answered(
    request: web.BaseRequest, engine: Engine, wish: BuildWish, told: AsyncIterator[BuildProgress]
) -> web.StreamResponse:
    """Send what is told; what fails before anything was is an error with a status."""
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    lines = _lines(engine, wish, told)
    first = await anext(lines)
    await response.prepare(request)
    async with aclosing(lines):
        await _send(response, first)
        try:
            async for line in lines:
                await _send(response, line)
        except SandboxError as error:
            words = as_refusal(error).message
            await _send(response, {"errorDetail": {"message": words}, "error": words})
        await response.write_eof()
    return response


async def _send(response: web.StreamResponse, line: dict[str, Any]) -> None:
    async with asyncio.timeout(_MOST_UNREAD_S):
        await response.write(f"{json.dumps(line)}\r\n".encode())


async def _lines(
    engine: Engine, wish: BuildWish, told: AsyncIterator[BuildProgress]
) -> AsyncGenerator[dict[str, Any], None]:
    """What a build tells, in Docker's form."""
    place = 0
    async for progress in told:
        if progress.image is not None:
            image = engine.images.built(progress.image, wish.tags)
            if wish.quiet:
                yield {"stream": f"{image.id}\n"}
                return
            yield {"aux": {"ID": image.id}}
            yield {"stream": f"Successfully built {short_id(image.id)}\n"}
            for tag in wish.tags:
                yield {"stream": f"Successfully tagged {tag}\n"}
        elif progress.text and not wish.quiet:
            # Some builders end with a line of their own that clients take for the answer.
            text = _ANSWER.sub("", progress.text)
            if text:
                yield {"stream": text}
        elif progress.place != place:
            place = progress.place
            yield {"status": f"{place} builds of yours are ahead" if place else "Building"}
