"""The route that builds images from Dockerfiles."""

import asyncio
import base64
import binascii
import hashlib
import json
import os
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing
from dataclasses import asdict
from typing import Annotated, BinaryIO, Final, Literal, Self

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field, StringConstraints, ValidationError
from starlette.responses import StreamingResponse

from controlplane.api.context import Owner, Service
from controlplane.api.problems import invalid
from controlplane.api.request_id import request_id
from controlplane.cluster import BuildWish
from controlplane.egress import PolicyOrPreset
from controlplane.errors import Problem
from controlplane.lifecycle.service.builds import BuildLimits, BuildProgress
from controlplane.model.base import Closed

MEDIA_TYPE: Final = "application/x-ndjson"
# Of the first line of a request, which says what is to be built.
MOST_WISH_BYTES: Final = 2 << 20
# Of one line of an answer; a character is six bytes at most in JSON.
MOST_TEXT: Final = 8192
# Of the archive of a context; its files have 1 GiB at most.
MOST_CONTEXT_BYTES: Final = (1 << 30) + (128 << 20)
DEFAULT_BUILD_MS: Final = 1_800_000
MAX_BUILD_MS: Final = 7_200_000
DEFAULT_IMAGE_BYTES: Final = 8 << 30
MAX_IMAGE_BYTES: Final = 64 << 30
# Contexts that come at once; further ones wait.
MOST_COMING: Final = 8
KEEP_FREE_BYTES: Final = 2 << 30
# A folder in memory would take what sandboxes need.
SPOOL: Final = "/var/tmp"  # noqa: S108 - the file has no name

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]{0,127}$")]

router = APIRouter(tags=["images"])
_coming = asyncio.Semaphore(MOST_COMING)


class BuildRequest(Closed):
    """What is to be built: the first line of the request, behind which the archive of the context comes.

    Attributes:
        dockerfile: its text.
        args: values of its ARGs.
        target: the stage that is wanted; empty: the last one.
        context: the SHA-256 of the archive, ``sha256:...``.
        secrets: by their ids, in base64; they are in no layer.
        timeout_ms: after which nothing is built; the wait for a turn does not count.
        max_bytes: of the layers that the base has not.
        egress: what its steps may reach: the name of a preset, or a policy; null: nothing.
    """

    dockerfile: str = Field(min_length=1)
    args: dict[Name, Annotated[str, StringConstraints(max_length=65_536)]] = Field(default_factory=dict, max_length=256)
    target: str = Field("", max_length=128)
    context: str = Field(pattern=r"^sha256:[0-9a-f]{64}$")
    secrets: dict[Name, str] = Field(default_factory=dict, max_length=64)
    timeout_ms: int = Field(DEFAULT_BUILD_MS, ge=1_000, le=MAX_BUILD_MS)
    max_bytes: int = Field(DEFAULT_IMAGE_BYTES, ge=1, le=MAX_IMAGE_BYTES)
    egress: PolicyOrPreset | None = None


class BuildLine(BaseModel):
    """A line of a build: how far it is; the last one is ``built`` or ``context_wanted``, or has why it is neither.

    Attributes:
        place: in the line of your builds, from 1.
        text: what the builder says.
        image: its name with its digest: what a create takes.
        size_bytes: of the layers that its base has not.
        cached: it was there already, and nothing was built.
        problem: why there is none, as the API answers failures.
    """

    state: Literal["queued", "building", "context_wanted", "built", "failed"]
    place: int = 0
    text: str = ""
    image: str = ""
    digest: str = ""
    size_bytes: int = 0
    cached: bool = False
    problem: dict[str, object] | None = None

    @classmethod
    def of(cls, told: BuildProgress) -> Self:
        """From what the lifecycle tells."""
        return cls(**asdict(told))


@router.post(
    "/images/build",
    summary="Build an image from a Dockerfile; answers with the progress",
    response_class=StreamingResponse,
    responses={200: {"model": BuildLine, "description": "One JSON object a line", "content": {MEDIA_TYPE: {}}}},
    openapi_extra={
        "requestBody": {
            "required": True,
            "description": "A JSON object (BuildRequest) on one line, then the context as a tar archive. Without an "
            "archive the answer is `context_wanted`, unless the image is there.",
            "content": {"application/vnd.rollbox.build": {"schema": {"type": "string", "format": "binary"}}},
        }
    },
)
async def build(request: Request, service: Service, owner: Owner) -> StreamingResponse:
    """What was built before is not built again. A caller that leaves ends the build, and nothing of it is left."""
    service.builds.check()
    async with _coming:
        wish, context = await _read(request)
    secrets = {name: _secret(name, value) for name, value in wish.secrets.items()}
    what = BuildWish(wish.dockerfile, wish.args, wish.target, wish.context)
    limits = BuildLimits(wish.timeout_ms, wish.max_bytes, wish.egress)
    told = service.builds.build(owner, what, context, secrets, limits)
    try:
        # What cannot be begun at all is an answer with a status of its own.
        first = await anext(told)
    except BaseException:
        await told.aclose()
        if context is not None:
            context.close()
        raise
    return StreamingResponse(_lines(first, told, context), media_type=MEDIA_TYPE)


async def _read(request: Request) -> tuple[BuildRequest, BinaryIO | None]:
    """The first line, and the rest as a file; None: there is none."""
    chunks = request.stream()
    line = b""
    async for chunk in chunks:
        line += chunk
        if b"\n" in line:
            break
        if len(line) > MOST_WISH_BYTES:
            raise Problem("payload_too_large", f"the first line of a build has at most {MOST_WISH_BYTES} bytes")
    head, _, rest = line.partition(b"\n")
    try:
        wish = BuildRequest.model_validate(json.loads(head))
    except ValidationError as error:
        raise invalid(error.errors()) from error
    except ValueError as error:
        raise Problem("invalid_argument", f"the first line is no JSON: {error}") from error
    try:
        file = tempfile.TemporaryFile(dir=SPOOL)  # noqa: SIM115 - the caller closes it
    except OSError as error:
        detail = f"{SPOOL} takes no context of a build: {error.strerror}"
        raise Problem("capacity_unavailable", detail) from error
    try:
        digest, length = await _spooled(file, rest, chunks)
        if length and digest != wish.context:
            raise Problem("invalid_argument", f"the context has the digest {digest}", field="context")
    except BaseException:
        file.close()
        raise
    if length:
        return wish, file
    file.close()
    return wish, None


async def _spooled(file: BinaryIO, first: bytes, chunks: AsyncIterator[bytes]) -> tuple[str, int]:
    seen, length = hashlib.sha256(), 0

    async def take(chunk: bytes) -> None:
        nonlocal length
        length += len(chunk)
        if length > MOST_CONTEXT_BYTES:
            detail = f"the archive of a context has at most {MOST_CONTEXT_BYTES} bytes"
            raise Problem("payload_too_large", detail, reason="context_too_large")
        seen.update(chunk)
        await asyncio.to_thread(_write, file, chunk)

    await take(first)
    async for chunk in chunks:
        await take(chunk)
    return f"sha256:{seen.hexdigest()}", length


def _write(file: BinaryIO, chunk: bytes) -> None:
    free = os.fstatvfs(file.fileno())
    if free.f_bavail * free.f_frsize < KEEP_FREE_BYTES:
        raise Problem("capacity_unavailable", f"{SPOOL} has no room for the context of a build")
    file.write(chunk)


def _secret(name: str, value: str) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Problem("invalid_argument", f"secrets.{name} is no base64", field="secrets") from error


async def _lines(
    first: BuildProgress, told: AsyncGenerator[BuildProgress, None], context: BinaryIO | None
) -> AsyncIterator[str]:
    try:
        async with aclosing(told):
            yield _line(BuildLine.of(first))
            try:
                async for progress in told:
                    for line in _split(BuildLine.of(progress)):
                        yield _line(line)
            except Problem as problem:
                yield _line(BuildLine(state="failed", problem=problem.to_json(request_id())))
    finally:
        if context is not None:
            context.close()


def _split(line: BuildLine) -> Iterator[BuildLine]:
    """Lines that no reader has to hold at length."""
    if len(line.text) <= MOST_TEXT:
        yield line
        return
    for begin in range(0, len(line.text), MOST_TEXT):
        yield line.model_copy(update={"text": line.text[begin : begin + MOST_TEXT]})


def _line(line: BuildLine) -> str:
    return f"{line.model_dump_json(exclude_defaults=True)}\n"
