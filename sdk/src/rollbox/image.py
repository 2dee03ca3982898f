"""Images: those that are made of sandboxes, those on nodes, and their prefetch. Pure: JSON in, dataclasses out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, Self, TypeAlias

from rollbox._problem import SandboxError
from rollbox.errors import InvalidArgument

PrefetchState: TypeAlias = Literal["pulling", "here", "failed"]


class CommittedImage(str):
    """The name of an image that was made of a sandbox, with its digest: a `str`, for all that takes an image.

    Attributes:
        digest: of the image.
        size_bytes: of its new layer.
        skipped: what of the sandbox is not in it, each with the reason: sockets, devices, ...
    """

    digest: str
    size_bytes: int
    skipped: tuple[str, ...]

    def __new__(cls, name: str, *, digest: str = "", size_bytes: int = 0, skipped: Iterable[str] = ()) -> Self:
        """Make one; done by `Sandbox.commit`."""
        made = super().__new__(cls, name)
        made.digest, made.size_bytes, made.skipped = digest, size_bytes, tuple(skipped)
        return made

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Self:
        """Read the wire form."""
        return cls(body["image"], digest=body["digest"], size_bytes=body["size_bytes"], skipped=body["skipped"])

    def to_json(self) -> dict[str, Any]:
        """Return all of it as JSON."""
        return {"image": str(self), **{name: getattr(self, name) for name in ("digest", "size_bytes", "skipped")}}


class Checkpoint(CommittedImage):
    """A checkpoint of a sandbox, for as long as its time lasts: the name of an image, for all that takes one.

    Attributes:
        id: what `Sandbox.create(checkpoint=)` takes too, from another process for example.
        expires_at_ms: from when on nothing starts from it (Unix ms).
        depth: how many checkpoints it has been since an image that is none, this one counted.
    """

    id: str
    expires_at_ms: int
    depth: int

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Self:
        """Read the wire form."""
        made = super().from_json(body)
        made.id, made.expires_at_ms, made.depth = body["checkpoint"], body["expires_at_ms"], body["depth"]
        return made

    def to_json(self) -> dict[str, Any]:
        """Return all of it as JSON."""
        own = {"checkpoint": self.id, "expires_at_ms": self.expires_at_ms, "depth": self.depth}
        return {**own, **super().to_json()}


class BuiltImage(str):
    """The name of an image that was built from a Dockerfile, with its digest: a `str`, for all that takes an image.

    Attributes:
        digest: of the image.
        size_bytes: of the layers that its base has not; 0 where it was there already.
        cached: it was there already, and nothing was built.
    """

    digest: str
    size_bytes: int
    cached: bool

    def __new__(cls, name: str, *, digest: str = "", size_bytes: int = 0, cached: bool = False) -> Self:
        """Make one; done by `Client.build`."""
        made = super().__new__(cls, name)
        made.digest, made.size_bytes, made.cached = digest, size_bytes, cached
        return made

    def to_json(self) -> dict[str, Any]:
        """Return all of it as JSON."""
        return {"image": str(self), **{name: getattr(self, name) for name in ("digest", "size_bytes", "cached")}}


@dataclass(frozen=True, slots=True)
class BuildProgress:
    """How far a build is.

    Attributes:
        state: "queued" while others of yours have their turn; "built" is the last one.
        place: in the line of your builds, from 1.
        text: what the builder says, as it comes.
        image: with "built".
    """

    state: Literal["queued", "building", "built"]
    place: int = 0
    text: str = ""
    image: BuiltImage | None = None

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> BuildProgress:
        """Read a line of the answer; fields that have their default are left out there."""
        image = None
        if body["state"] == "built":
            known = {name: body[name] for name in ("digest", "size_bytes", "cached") if name in body}
            image = BuiltImage(body["image"], **known)
        return cls(body["state"], body.get("place", 0), body.get("text", ""), image)

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON."""
        own: dict[str, Any] = {"state": self.state, "place": self.place, "text": self.text}
        return own if self.image is None else {**own, **self.image.to_json()}


@dataclass(frozen=True, slots=True)
class ImageConfig:
    """What an image says of the processes that run from it. A sandbox does not run its command by itself.

    Attributes:
        image: as it was asked for.
        digest: what `SandboxRecord.image_digest` names it by; "" where the engine tells none.
        architecture: that it is for; "": it does not say.
        created: the time (RFC 3339); "": it does not say.
        entrypoint, cmd: the words of its command.
        env: its variables.
        cwd, user: "": `/`, and root.
        stop_signal: that asks its command to end; "": SIGTERM.
        labels: of it.
        ports: that its programs listen at, as `8000/tcp`.
    """

    image: str
    digest: str = ""
    architecture: str = ""
    created: str = ""
    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str = ""
    user: str = ""
    stop_signal: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    ports: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Self:
        """Read the wire form; fields that this version does not know are left out."""
        known: dict[str, Any] = {item.name: body[item.name] for item in fields(cls) if item.name in body}
        known |= {name: tuple(known[name]) for name in ("entrypoint", "cmd", "ports") if name in known}
        known["env"] = {name: value for name, _, value in (str(one).partition("=") for one in body.get("env", ()))}
        return cls(**known)

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class NodeImage:
    """An image on a node.

    Attributes:
        names: those that the node knows it by.
        digest: what `SandboxRecord.image_digest` names it by; "" where the node does not tell one.
        size_bytes: what it takes there; what images share is counted in each of them.
        lazy: whether it is pulled lazily; None: not told.
        last_used_ms: when a sandbox last ran from it (Unix ms); None: not known.
    """

    node: str
    names: tuple[str, ...]
    digest: str
    size_bytes: int
    lazy: bool | None = None
    last_used_ms: int | None = None

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> NodeImage:
        """Read the wire form; fields that this version does not know are left out."""
        known = {item.name: body[item.name] for item in fields(cls) if item.name in body}
        return cls(**{**known, "names": tuple(body["names"])})

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON."""
        return asdict(self)


NodeImageList: TypeAlias = list[NodeImage]


@dataclass(frozen=True, slots=True)
class Commit:
    """An image of yours that was made of a sandbox.

    Attributes:
        image: its name with its digest: what a create takes, and `Client.remove_image`.
        tags: those that it has now; none: a later commit took the last one.
        size_bytes: of its own layer.
        created_at_ms: when it was made (Unix ms).
        built_on: digests of your images whose layers it has too; they are removed after it.
        expires_at_ms: of a checkpoint, whose id is its tag: from when on nothing starts from it; None: it is none.
    """

    image: str
    tags: tuple[str, ...]
    digest: str
    size_bytes: int
    created_at_ms: int = 0
    built_on: tuple[str, ...] = ()
    expires_at_ms: int | None = None

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Commit:
        """Read the wire form; fields that this version does not know are left out."""
        known = {item.name: body[item.name] for item in fields(cls) if item.name in body}
        return cls(**{**known, "tags": tuple(body["tags"]), "built_on": tuple(body.get("built_on", ()))})


@dataclass(frozen=True, slots=True)
class Commits:
    """Your images that were made of sandboxes, oldest first.

    Attributes:
        used_bytes: of their own layers together.
        limit_bytes: the most of that; None: no limit.
    """

    images: tuple[Commit, ...]
    used_bytes: int
    limit_bytes: int | None

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Commits:
        """Read the wire form."""
        return cls(tuple(Commit.from_json(one) for one in body["images"]), body["used_bytes"], body["limit_bytes"])

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class PrefetchProgress:
    """How far a node is with an image.

    Attributes:
        image: as it was asked for.
        node: "" where the image failed before any node was asked.
        state: "here" and "failed" are the last ones of an image on a node.
        done_bytes, total_bytes: of the layers of which the sizes are known; None: not known.
        error: why it failed.
    """

    image: str
    node: str
    state: PrefetchState
    done_bytes: int = 0
    total_bytes: int | None = None
    error: SandboxError | None = None

    @classmethod
    def from_json(cls, body: Mapping[str, Any], error: SandboxError | None) -> PrefetchProgress:
        """Read a line of the answer; fields that have their default are left out there."""
        done_bytes, total_bytes = body.get("done_bytes", 0), body.get("total_bytes")
        return cls(body["image"], body.get("node", ""), body["state"], done_bytes, total_bytes, error)

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON, an error by its code and detail."""
        error = None if self.error is None else {"code": self.error.code, "detail": self.error.detail}
        return {**{item.name: getattr(self, item.name) for item in fields(self)}, "error": error}


@dataclass(frozen=True, slots=True)
class ConversionProgress:
    """How far the conversion of an image is.

    Attributes:
        state: "offered" is the last one: sandboxes of this image are given it from now on; "recording" while a command
            runs whose files come first.
        text: how far it is, for people.
        digest: what the image's name means; "" before it is offered.
        ran: the digest of the converted image.
        files: how many files the recorded command has opened, once that is known.
        more: it has opened more, which do not come first.
        run_failed: how the recorded command has failed; "": it has not.
    """

    state: Literal["copying", "converting", "recording", "offered"]
    text: str = ""
    digest: str = ""
    ran: str = ""
    files: int = 0
    more: bool = False
    run_failed: str = ""

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> ConversionProgress:
        """Read a line of the answer; fields that this version does not know are left out."""
        return cls(**{item.name: body[item.name] for item in fields(cls) if item.name in body})

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class PrefetchReport:
    """What a prefetch came to.

    Attributes:
        here: the nodes that have each image.
        failed: the error of each image on each node; the node is "" where none was asked.
    """

    here: dict[str, list[str]] = field(default_factory=dict)
    failed: dict[tuple[str, str], SandboxError] = field(default_factory=dict)

    def add(self, progress: PrefetchProgress) -> bool:
        """Add what is final; returns whether it is news."""
        at = (progress.image, progress.node)
        if progress.state == "pulling" or at in self.failed or progress.node in self.here.get(progress.image, ()):
            return progress.state == "pulling"
        if progress.error is not None:
            self.failed[at] = progress.error
        else:
            self.here.setdefault(progress.image, []).append(progress.node)
        return True

    def require(self) -> PrefetchReport:
        """Raise the first failure, if any; returns the report."""
        for (image, node), error in self.failed.items():
            error.add_note(f"{image} could not be pulled" + (f" on {node}" if node else ""))
            raise error
        return self


def names(images: str | Iterable[str]) -> Sequence[str]:
    """Check the names of images; one alone is a list of one.

    Returns:
        the names, each once, in their order.

    Raises:
        InvalidArgument: there is none, or one is not text.
    """
    found = [images] if isinstance(images, str) else list(images)
    if not found or not all(isinstance(one, str) and one for one in found):
        raise InvalidArgument("no image is named" if not found else f"images {found!r} are not all names")
    return [str(one) for one in dict.fromkeys(found)]
