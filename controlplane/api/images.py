"""The routes of ``/v1/images``, and of images that are made of sandboxes."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import asdict
from typing import Annotated, Final, Literal, Self

from fastapi import APIRouter, Header, Path, Request
from pydantic import AfterValidator, BaseModel, Field, StringConstraints, model_validator
from starlette.responses import StreamingResponse

from controlplane.api.context import Operates, Owner, Service
from controlplane.api.hangup import unless_gone
from controlplane.api.request_id import request_id
from controlplane.api.sandboxes import checked_key
from controlplane.cluster import CommittedImage, NodeImage, PrefetchState
from controlplane.errors import Problem
from controlplane.images import MOST_FIRST, MOST_FIRST_BYTES, ImageConfig, names_a_file
from controlplane.lifecycle.housekeeping.committed import CommittedUse, checkpoint_of
from controlplane.lifecycle.images import ConversionProgress, ImageProgress, RecordWish
from controlplane.lifecycle.service.commits import CommitWish
from controlplane.model.base import Closed
from controlplane.model.spec import ImageName

MEDIA_TYPE: Final = "application/x-ndjson"
# Of one call; a run with more images asks for its next ones while the ones before are used.
MOST_PREFETCHED: Final = 1024
MOST_NODES: Final = 100_000
DEFAULT_COMMIT_BYTES: Final = 4 << 30
MAX_COMMIT_BYTES: Final = 64 << 30
DEFAULT_COMMIT_MS: Final = 120_000
MAX_COMMIT_MS: Final = 600_000
DEFAULT_RECORD_MS: Final = 600_000
MAX_RECORD_MS: Final = 1_800_000
MAX_COMMAND: Final = 65_536

AnyName = Annotated[ImageName, Path(description="as a create is given it")]
CommittedName = Annotated[
    str, Path(max_length=512, description="`NAME[:TAG][@DIGEST]` among your own images, or the whole name of one")
]

router = APIRouter(tags=["images"])


class NodeImageBody(BaseModel):
    """An image on a node.

    Attributes:
        names: those that the node knows it by; for operators also images that have none.
        digest: what records and creates name it by; empty: the node does not tell one.
        size_bytes: what it takes there; what images share is counted in each of them.
        lazy: whether it is pulled lazily; null: not told.
        last_used_ms: when a sandbox last ran from it (Unix ms); null: not known.
    """

    node: str
    names: list[str]
    digest: str
    size_bytes: int
    lazy: bool | None
    last_used_ms: int | None

    @classmethod
    def of(cls, image: NodeImage) -> Self:
        """From what the cluster tells."""
        fields = {"node": image.node, "digest": image.digest, "size_bytes": image.size_bytes, "lazy": image.lazy}
        return cls(names=list(image.names), last_used_ms=image.last_used_ms, **fields)


class NodeImageList(BaseModel):
    """The images on the nodes, by node and name."""

    images: list[NodeImageBody]


class PrefetchRequest(Closed):
    """Which images are to be on the nodes.

    Attributes:
        nodes: on how many each is to be, with those that have it already; null: on all. Creates prefer the same ones.
    """

    images: list[ImageName] = Field(min_length=1, max_length=MOST_PREFETCHED)
    nodes: int | None = Field(default=None, ge=1, le=MOST_NODES)


class PrefetchLine(BaseModel):
    """A line of a prefetch: how far a node is with an image; the last line has ``summary`` alone, or ``problem``.

    Attributes:
        image: as the request named it.
        node: empty where the image failed before any node was asked.
        state: ``here`` and ``failed`` are a node's last ones for an image.
        done_bytes, total_bytes: of the layers of which the sizes are known; null: not known.
        problem: why it failed, as the API answers failures; without ``image`` why the whole prefetch did, as last line.
        summary: how many pulls, one for each image and node, came to ``here`` and to ``failed``.
    """

    image: str = ""
    node: str = ""
    state: PrefetchState | None = None
    done_bytes: int = 0
    total_bytes: int | None = None
    problem: dict[str, object] | None = None
    summary: dict[str, int] | None = None

    @classmethod
    def of(cls, told: ImageProgress) -> Self:
        """From what the lifecycle tells."""
        one = told.progress
        problem = None if one.failure is None else one.failure.to_json(request_id())
        return cls(
            image=told.image,
            node=one.node,
            state=one.state,
            done_bytes=one.done_bytes,
            total_bytes=one.total_bytes,
            problem=problem,
        )


def _names_a_file(path: str) -> str:
    if not names_a_file(path):
        raise ValueError(f"{path[:200]!r} is no absolute path without '.', '..' and doubled slashes")
    return path


def _in_all(paths: list[str]) -> list[str]:
    if sum(len(one.encode()) for one in paths) > MOST_FIRST_BYTES:
        raise ValueError(f"paths must have at most {MOST_FIRST_BYTES} bytes in all")
    return paths


def _text(command: str) -> str:
    if "\0" in command:
        raise ValueError("a command has no NUL")
    command.encode()  # half a character cannot be
    return command


FilePath = Annotated[str, AfterValidator(_names_a_file)]


class ConvertRequest(Closed):
    """Which image is to be converted.

    Attributes:
        first: paths of files that nodes fetch before all others, in this order; those that the image does not have are
            left out. The result is a copy that your starts alone get.
        record: has these found: a command line, which runs in a sandbox of yours by its shell. How it ends is told, and
            changes nothing, unless it is not over in time.
        record_timeout_ms: how long it may run.
    """

    image: ImageName
    first: Annotated[list[FilePath], Field(max_length=MOST_FIRST), AfterValidator(_in_all)] = Field(
        default_factory=list
    )
    record: Annotated[str, StringConstraints(min_length=1, max_length=MAX_COMMAND), AfterValidator(_text)] | None = None
    record_timeout_ms: int = Field(default=DEFAULT_RECORD_MS, ge=1000, le=MAX_RECORD_MS)

    @model_validator(mode="after")
    def _one(self) -> Self:
        if self.first and self.record is not None:
            raise ValueError("first and record exclude each other")
        return self


class ConvertLine(BaseModel):
    """A line of a conversion: how far it is; the last one is ``offered``, or has why it is not.

    Attributes:
        text: how far it is, for people.
        digest: what the name means; with ``offered``.
        ran: the digest of the converted copy, which sandboxes of this image run from now on.
        files: how many the recorded command has opened, once that is known.
        more: it has opened more, which do not come first.
        run_failed: how the recorded command has failed; empty: it has not.
        problem: why it is not offered, as the API answers failures.
    """

    state: Literal["copying", "converting", "recording", "offered", "failed"]
    text: str = ""
    digest: str = ""
    ran: str = ""
    files: int = 0
    more: bool = False
    run_failed: str = ""
    problem: dict[str, object] | None = None

    @classmethod
    def of(cls, told: ConversionProgress) -> Self:
        """From what the lifecycle tells."""
        return cls(**asdict(told))


class CommitRequest(Closed):
    """What a sandbox is to become.

    Attributes:
        name: ``NAME[:TAG]`` among the owner's own images, or the name of one of them; that one gives its name up.
        max_bytes: the most that the new layer may have.
        timeout_ms: after which nothing is made.
    """

    name: str = Field(min_length=1, max_length=512)
    max_bytes: int = Field(DEFAULT_COMMIT_BYTES, ge=1, le=MAX_COMMIT_BYTES)
    timeout_ms: int = Field(DEFAULT_COMMIT_MS, ge=1_000, le=MAX_COMMIT_MS)


class CommitBody(BaseModel):
    """The new image.

    Attributes:
        image: its name with its digest: what a create takes, and what another commit to the name does not change.
        size_bytes: of its layer.
        skipped: what of the sandbox is not in it, each with the reason.
    """

    image: str
    digest: str
    size_bytes: int
    skipped: list[str]


class CommittedBody(BaseModel):
    """An image that was made of a sandbox.

    Attributes:
        image: its name with its digest.
        tags: those that it has now; none: a later commit took the last one.
        size_bytes: of its own layer.
        built_on: digests of your images whose layers it has too.
        expires_at_ms: of a checkpoint, whose id is its tag: from when on nothing starts from it (Unix ms); null: it is
            none, and stays until it is removed.
    """

    image: str
    tags: list[str]
    digest: str
    size_bytes: int
    created_at_ms: int
    built_on: list[str]
    expires_at_ms: int | None

    @classmethod
    def of(cls, place: str, image: CommittedImage) -> Self:
        """From what the cluster tells."""
        tag = f":{image.tags[0]}" if image.tags else ""
        checkpoint = checkpoint_of(place, image)
        return cls(
            image=f"{image.name}{tag}@{image.digest}",
            tags=list(image.tags),
            digest=image.digest,
            size_bytes=image.size_bytes,
            created_at_ms=image.created_at_ms,
            built_on=list(image.built_on),
            expires_at_ms=None if checkpoint is None else checkpoint.expires_at_ms,
        )


class CommittedList(BaseModel):
    """Your images that were made of sandboxes, oldest first, and the bytes of their own layers.

    Attributes:
        limit_bytes: null: there is none.
    """

    images: list[CommittedBody]
    used_bytes: int
    limit_bytes: int | None

    @classmethod
    def of(cls, use: CommittedUse) -> Self:
        """From the lifecycle's view."""
        images = [CommittedBody.of(use.place, one) for one in use.images]
        return cls(images=images, used_bytes=use.used_bytes, limit_bytes=use.limit_bytes or None)


class RemovedImage(BaseModel):
    """What became of a removal.

    Attributes:
        removed: false: there was no such image.
        freed_bytes: of its own layer.
    """

    name: str
    removed: bool
    digest: str = ""
    freed_bytes: int = 0


class ImageConfigBody(BaseModel):
    """What an image says of the processes that run from it.

    Attributes:
        digest: of the image, as records name it; empty: the engine tells none.
        architecture: that it is for; empty: it does not say.
        created: the time (RFC 3339); empty: it does not say.
        entrypoint, cmd: the words of its command; none: it has no such. Sandboxes do not run it by themselves.
        env: `NAME=VALUE` each.
        cwd, user: empty: `/`, and root.
        stop_signal: that asks its command to end; empty: SIGTERM.
        ports: that its programs listen at, as `8000/tcp`.
    """

    image: str
    digest: str
    architecture: str
    created: str
    entrypoint: list[str]
    cmd: list[str]
    env: list[str]
    cwd: str
    user: str
    stop_signal: str
    labels: dict[str, str]
    ports: list[str]

    @classmethod
    def of(cls, image: str, config: ImageConfig) -> Self:
        """From what is known of it."""
        told = asdict(config)
        return cls(**{**told, "image": image})


@router.get("/images", summary="Which images the nodes have")
async def find(service: Service, owner: Owner, operates: Operates) -> NodeImageList:
    """All but those that others have committed; operators see these too."""
    found = await service.inventory.list(owner, everything=operates)
    return NodeImageList(images=[NodeImageBody.of(one) for one in found])


@router.post(
    "/images/prefetch",
    summary="Pull images to the nodes before they are needed; answers with the progress",
    response_class=StreamingResponse,
    responses={200: {"model": PrefetchLine, "description": "One JSON object a line", "content": {MEDIA_TYPE: {}}}},
)
async def prefetch(wish: PrefetchRequest, service: Service, owner: Owner) -> StreamingResponse:
    """Pulls what creates of these names would start from; ends with a summary. A caller that leaves ends its wait."""
    told = service.inventory.prefetch(owner, wish.images, wish.nodes)
    # What cannot be begun at all is an answer with a status of its own.
    first = await anext(told, None)
    return StreamingResponse(_lines(first, told), media_type=MEDIA_TYPE)


@router.post(
    "/images/convert",
    summary="Convert an image, so that nodes mount it while they fetch it; answers with the progress",
    response_class=StreamingResponse,
    responses={200: {"model": ConvertLine, "description": "One JSON object a line", "content": {MEDIA_TYPE: {}}}},
)
async def convert(wish: ConvertRequest, service: Service, owner: Owner) -> StreamingResponse:
    """Starts are given the result once a sandbox has started from it. The conversion outlives a caller that leaves."""
    record = None if wish.record is None else RecordWish(wish.record, wish.record_timeout_ms)
    told = service.inventory.convert(owner, wish.image, wish.first, record)
    # What cannot be begun at all is an answer with a status of its own.
    first = await anext(told)
    return StreamingResponse(_conversion(first, told), media_type=MEDIA_TYPE)


@router.post("/sandboxes/{sandbox_id}/commit", summary="Make an image of a running sandbox")
async def commit(
    sandbox_id: str,
    wish: CommitRequest,
    request: Request,
    *,
    service: Service,
    owner: Owner,
    idempotency_key: Annotated[str | None, Header()] = None,
) -> CommitBody:
    """Its processes stand still meanwhile. Either the image is there, or nothing is left of it.

    A call that comes again with its idempotency key within ten minutes joins the first one or gets its answer.
    """

    async def give_up() -> None:
        """Without a key the work was cancelled; with one it goes on, and its caller comes back for it."""

    key = checked_key(idempotency_key, "Idempotency-Key")
    asked = CommitWish(sandbox_id, wish.name, wish.max_bytes, wish.timeout_ms)
    made = await unless_gone(request, service.commit(owner, asked, key), give_up)
    return CommitBody(
        image=f"{made.name}@{made.digest}",
        digest=made.digest,
        size_bytes=made.size_bytes,
        skipped=list(made.skipped),
    )


@router.get("/images/config/{name:path}", summary="What an image says of the processes that run from it")
async def config(name: AnyName, service: Service, owner: Owner) -> ImageConfigBody:
    """Of the image that a create would start from now. Nothing is pulled: what is not there, its registry is asked."""
    return ImageConfigBody.of(name, await service.configs.of(owner, name))


@router.get("/images/commits", summary="Your images that were made of sandboxes")
async def committed(service: Service, owner: Owner) -> CommittedList:
    """With what they take, and what they may."""
    return CommittedList.of(await service.committed.use(owner))


@router.delete("/images/commits/{name:path}", summary="Remove an image that was made of a sandbox")
async def remove(name: CommittedName, service: Service, owner: Owner) -> RemovedImage:
    """With all its names. A conflict while a sandbox, a pool or another image needs it. Repeating is success."""
    image = await service.committed.remove(owner, name)
    if image is None:
        return RemovedImage(name=name, removed=False)
    return RemovedImage(name=name, removed=True, digest=image.digest, freed_bytes=image.size_bytes)


async def _lines(first: ImageProgress | None, told: AsyncGenerator[ImageProgress, None]) -> AsyncIterator[str]:
    summary = {"here": 0, "failed": 0}
    async with aclosing(told):
        if first is not None:
            yield _counted(first, summary)
        try:
            async for progress in told:
                yield _counted(progress, summary)
        except Problem as problem:
            yield _line(PrefetchLine(problem=problem.to_json(request_id())))
            return
    yield _line(PrefetchLine(summary=summary))


async def _conversion(first: ConversionProgress, told: AsyncGenerator[ConversionProgress, None]) -> AsyncIterator[str]:
    async with aclosing(told):
        yield _line(ConvertLine.of(first))
        try:
            async for progress in told:
                yield _line(ConvertLine.of(progress))
        except Problem as problem:
            yield _line(ConvertLine(state="failed", problem=problem.to_json(request_id())))


def _counted(told: ImageProgress, summary: dict[str, int]) -> str:
    if told.progress.state in summary:
        summary[told.progress.state] += 1
    return _line(PrefetchLine.of(told))


def _line(line: PrefetchLine | ConvertLine) -> str:
    return f"{line.model_dump_json(exclude_defaults=True)}\n"
