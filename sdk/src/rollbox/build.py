"""A build of an image: await it for the image, or iterate it for its progress."""

from __future__ import annotations

import asyncio
import base64
import json
import os
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import IO, Any, TypeAlias, TypedDict

from rollbox._problem import SandboxError
from rollbox.build_context import pack, read_text
from rollbox.dockerignore import Ignored
from rollbox.egress import Egress, wish_to_json
from rollbox.errors import InvalidArgument, StreamInterrupted
from rollbox.gateway import Gateway
from rollbox.image import BuildProgress, BuiltImage
from rollbox.reading import Reading
from rollbox.request import count, milliseconds
from rollbox.retry import Resumption
from rollbox.transport import Body, error_from_problem

# How long the connection may be away altogether.
_AWAY_S = 60.0
_CHUNK_BYTES = 1 << 18
_MEDIA_TYPE = "application/vnd.rollbox.build"

Secret: TypeAlias = str | bytes | Path


class BuildOptions(TypedDict, total=False):
    """How an image is built.

    Attributes:
        file: the Dockerfile (`Dockerfile` in the folder).
        args: values of its ARGs.
        target: the stage that is wanted (the last one).
        secrets: by the ids that `RUN --mount=type=secret,id=ID` names: text, bytes, or the `Path` of a file. They are
            in no layer, and do not count as a change.
        egress: what its steps may reach: a preset or a policy (nothing). They find the way by a proxy's variables, as
            in a sandbox; what is built is the same image whatever they may reach.
        timeout: how long the build may take, in seconds, without its wait for a turn (1800).
        max_bytes: the most that its layers may have beside those of its base, in bytes (8 GiB).
    """

    file: str | os.PathLike[str]
    args: Mapping[str, str]
    target: str
    secrets: Mapping[str, Secret]
    egress: Egress
    timeout: float
    max_bytes: int


class Build:
    """Builds an image from a Dockerfile.

        image = await client.build("task/environment")

        async for progress in client.build("task/environment"):
            print(progress.text, end="")

    Nothing is read or sent before one of the two. What was built before from the same content is not built again, and
    its context is not sent. A connection that breaks is made again. Leaving the iteration ends the build, and nothing
    of it is left.
    """

    def __init__(self, gateway: Gateway, folder: str | os.PathLike[str], options: BuildOptions) -> None:
        """Use `Client.build` instead."""
        if unknown := sorted(options.keys() - BuildOptions.__annotations__.keys()):
            raise InvalidArgument(f"build has no option {unknown[0]!r}")
        self._gateway = gateway
        self._folder = Path(folder)
        self._file = Path(options.get("file") or self._folder / "Dockerfile")
        self._secrets = dict(options.get("secrets", {}))
        self.image: BuiltImage | None = None
        """What was built, once it was."""
        self._wish: dict[str, Any] = {"args": _texts("args", options.get("args", {}))}
        if target := options.get("target"):
            self._wish["target"] = target
        if "egress" in options:
            self._wish["egress"] = wish_to_json(options["egress"])
        if "timeout" in options:
            self._wish["timeout_ms"] = milliseconds("timeout", options["timeout"])
        if "max_bytes" in options:
            self._wish["max_bytes"] = count("max_bytes", options["max_bytes"])

    def __await__(self) -> Generator[Any, None, BuiltImage]:
        return self._image().__await__()

    def __aiter__(self) -> Reading[BuildProgress]:
        return Reading(self._progress())

    async def _image(self) -> BuiltImage:
        said: list[str] = []
        try:
            while self.image is None:
                async for progress in self._progress():
                    said = [*said, progress.text][-_LAST_WORDS:] if progress.text else said
        except SandboxError as error:
            if last := "".join(said).strip():
                error.add_note(f"the builder's last words:\n{last}")
            raise
        return self.image

    async def _progress(self) -> AsyncGenerator[BuildProgress, None]:
        wish, archive = await asyncio.to_thread(self._read)
        resumption = Resumption(self._gateway.retries, _AWAY_S)
        with archive:
            context: IO[bytes] | None = None
            while True:
                try:
                    async with aclosing(self._asked(wish, context, resumption)) as told:
                        async for progress in told:
                            self.image = progress.image
                            yield progress
                            if progress.image is not None:
                                return
                    if context is not None:
                        raise StreamInterrupted("the answer to a build ended before its last word")
                    context = archive
                except SandboxError as error:
                    await resumption.after(error)

    def _read(self) -> tuple[bytes, IO[bytes]]:
        """The first line of a request, and the archive. Blocks."""
        if not self._folder.is_dir():
            raise InvalidArgument(f"{self._folder} is no folder")
        dockerfile = read_text(self._file, "the Dockerfile")
        secrets = {name: base64.b64encode(_content(name, one)).decode() for name, one in self._secrets.items()}
        archive, digest = pack(self._folder, Ignored(self._ignore_file()))
        wish = {**self._wish, "dockerfile": dockerfile, "context": digest, "secrets": secrets}
        return f"{json.dumps(wish)}\n".encode(), archive

    def _ignore_file(self) -> str:
        own = self._file.with_name(f"{self._file.name}.dockerignore")
        for path in (own, self._folder / ".dockerignore"):
            if path.is_file():
                return read_text(path, "the file")
        return ""

    async def _asked(
        self, wish: bytes, context: IO[bytes] | None, resumption: Resumption
    ) -> AsyncGenerator[BuildProgress, None]:
        """The progress of one request; ends without an image where the context is wanted."""

        async def source() -> AsyncIterator[bytes]:
            yield wish
            if context is not None:
                context.seek(0)
                while chunk := await asyncio.to_thread(context.read, _CHUNK_BYTES):
                    yield chunk

        call = self._gateway.exchange_api("POST", "images", "build", source=source, media_type=_MEDIA_TYPE)
        async with call as answer:
            async for told in _lines(answer):
                resumption.progress()
                if told["state"] == "context_wanted":
                    return
                yield BuildProgress.from_json(told)


async def _lines(answer: Body) -> AsyncIterator[dict[str, Any]]:
    while line := await answer.line():
        told = json.loads(line)
        if (problem := told.get("problem")) is not None:
            raise error_from_problem(problem, answer.headers)
        yield told


# Pieces of what the builder has said, for the error.
_LAST_WORDS = 20


def _content(name: str, secret: Secret) -> bytes:
    if isinstance(secret, Path):
        try:
            return secret.read_bytes()
        except OSError as error:
            raise InvalidArgument(f"the secret {name!r} cannot be read: {error.strerror}") from error
    return secret.encode() if isinstance(secret, str) else secret


def _texts(what: str, values: Mapping[str, str]) -> dict[str, str]:
    for name, value in values.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise InvalidArgument(f"{what} {name!r}={value!r} is not text")
    return dict(values)
