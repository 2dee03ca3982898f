"""The options of a create, as values: checked when they are made, and written to the wire here. Pure.

`Sandbox.create` spells them out; groups, pools and preflight take them from here. The TypedDicts are what type checkers
need of those who pass keyword arguments on. A test says which of all these places lacks an option.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, Self, TypedDict, TypeVar, get_args

from rollbox import labels as label_rules
from rollbox import request
from rollbox.dataset import Mounts, mounts_body
from rollbox.egress import Egress, wish_to_json
from rollbox.errors import InvalidArgument
from rollbox.quantity import DEFAULT_CPU, DEFAULT_MEMORY, Cpu, Memory, Size, cpu_range, memory_range, parse_memory
from rollbox.request import Directory, InitialFiles, Variables, milliseconds

_Value = TypeVar("_Value")
# How a node gets an image: whole before the sandbox starts, or file by file while it runs.
Pull = Literal["auto", "full", "lazy"]


class ResourceOptions(TypedDict, total=False):
    """The options of `Resources`."""

    cpu: Cpu
    memory: Memory
    pids: int | None
    disk: Size | None
    gpu: int
    node_selector: Mapping[str, str] | None
    pull: Pull
    network: str | None
    mounts: Mounts | None


class GroupOptions(ResourceOptions, total=False):
    """The options of `SandboxGroup.create`: those of `Sandbox.create` that all sandboxes of a group share."""

    env: Variables | None
    files: InitialFiles | None
    cwd: Directory | None
    user: str | None
    labels: Mapping[str, str] | None
    ttl: float
    idle_timeout: float | None
    lease: float | None
    egress: Egress | None
    start_timeout: float
    checkpoint: str | None


class CreateOptions(GroupOptions, total=False):
    """The options of `Sandbox.create`, for code that passes them on; described there."""

    idempotency_key: str | None


class CommitOptions(TypedDict, total=False):
    """The options of `Sandbox.commit` that all commits have."""

    max_bytes: Size | None
    scrub_git: Mapping[str, str] | None
    timeout: float
    idempotency_key: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What a sandbox gets of its node. With the image they are the template, by which pools and creates match.

    Attributes:
        cpu: cores, a limit or (request, limit): 2, (0.1, 2), "500m"; of a limit alone a share is requested.
        memory: bytes or a size, a limit or (request, limit): "2Gi", ("256Mi", "2Gi"), 2**30; the same.
        pids: most processes and threads at a time; None is the installation's default.
        disk: bytes or a size; None is the installation's default.
        gpu: how many devices it gets, see `Sandbox.create`.
        node_selector: labels that its node must have.
        pull: how its node gets the image, see `Sandbox.create`.
        network: a direct network, see `Sandbox.create`.
        mounts: data sets and scratch by absolute path.

    Raises:
        InvalidArgument: one of them is invalid.
    """

    cpu: Cpu = DEFAULT_CPU
    memory: Memory = DEFAULT_MEMORY
    pids: int | None = None
    disk: Size | None = None
    gpu: int = 0
    node_selector: Mapping[str, str] | None = None
    pull: Pull = "auto"
    network: str | None = None
    mounts: Mounts | None = None

    def __post_init__(self) -> None:
        self.to_json()

    def to_json(self) -> dict[str, Any]:
        """Write the wire form; what only some installations support is left out where it is not asked for.

        Raises:
            InvalidArgument: a value is not one that this resource can have.
        """
        body: dict[str, Any] = {
            "cpu_millicores": cpu_range(self.cpu).to_json(),
            "memory_bytes": memory_range(self.memory).to_json(),
        }
        if self.pids is not None:
            body["pids_limit"] = request.count("pids", self.pids)
        if self.disk is not None:
            body["disk_bytes"] = parse_memory(self.disk, name="disk")
        if self.gpu:
            body["gpu"] = request.count("gpu", self.gpu)
        if self.node_selector:
            for name, value in self.node_selector.items():
                request.text("a name in node_selector", name)
                request.text(f"node_selector[{name!r}]", value)
            body["node_selector"] = dict(self.node_selector)
        if self.pull not in get_args(Pull):
            raise InvalidArgument(f"pull {self.pull!r} is none of {', '.join(get_args(Pull))}")
        if self.pull != "auto":
            body["pull"] = self.pull
        if self.network is not None:
            body["network"] = request.text("network", self.network)
        if self.mounts:
            body["mounts"] = mounts_body(self.mounts)
        return body


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSettings:
    """What every command in a sandbox starts with, unless its own call says otherwise.

    Attributes:
        env: variables, over those of the image.
        cwd: the directory; None is the image's.
        user: name or number; None is the image's.

    Raises:
        InvalidArgument: one of them is invalid.
    """

    env: Variables | None = field(default=None, repr=False)
    cwd: Directory | None = None
    user: str | None = None

    def __post_init__(self) -> None:
        self.to_json()

    def to_json(self) -> dict[str, Any]:
        """Write the wire form."""
        return request.command_settings(self.env, self.cwd, self.user)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifetime:
    """When a sandbox ends by itself.

    Attributes:
        ttl: seconds after which the server deletes it.
        idle_timeout: seconds without use after which it does; None is the installation's default.
        lease: seconds that the sandbox outlives its client; None: it is not bound to a client.

    Raises:
        InvalidArgument: one of them is not a positive number.
    """

    ttl: float = 3600
    idle_timeout: float | None = None
    lease: float | None = 600

    def __post_init__(self) -> None:
        self.to_json()

    def to_json(self) -> dict[str, Any]:
        """Write the wire form."""
        body: dict[str, Any] = {"ttl_ms": milliseconds("ttl", self.ttl)}
        if self.idle_timeout is not None:
            body["idle_timeout_ms"] = milliseconds("idle_timeout", self.idle_timeout)
        if self.lease is not None:
            body["lease"] = {"ttl_ms": milliseconds("lease", self.lease)}
        return body


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateSpec:
    """All that a create asks for.

    Attributes:
        image: name of a container image.
        resources, commands, lifetime: see there.
        labels: names and values to list and delete the sandbox by.
        egress: what it may reach: a preset or a policy; None is the installation's default.
        files: initial files by absolute path, which the client writes after the create (`files.initial` checks them).
        start_timeout: seconds that the whole call may take.
        idempotency_key: the same key with the same options gives the same sandbox; None: a random key.

    Raises:
        InvalidArgument: one of them is invalid.
    """

    image: str
    resources: Resources = Resources()
    commands: CommandSettings = CommandSettings()
    lifetime: Lifetime = Lifetime()
    labels: Mapping[str, str] | None = None
    files: InitialFiles | None = field(default=None, repr=False)
    egress: Egress | None = None
    start_timeout: float = 120
    idempotency_key: str | None = None

    def __post_init__(self) -> None:
        self.to_json()
        if self.idempotency_key is not None:
            request.key("idempotency_key", self.idempotency_key)

    @classmethod
    def of(cls, image: str | None, options: GroupOptions) -> Self:
        """Read the keyword arguments of a create; omitted ones have the defaults of `Sandbox.create`."""
        rest: dict[str, Any] = dict(**options)
        image = request.image(image, rest.pop("checkpoint", None))
        resources, commands = _taken(Resources, rest), _taken(CommandSettings, rest)
        return cls(image=image, resources=resources, commands=commands, lifetime=_taken(Lifetime, rest), **rest)

    def without_lease(self) -> Self:
        """Return the same for a sandbox that is not bound to a client."""
        return replace(self, lifetime=replace(self.lifetime, lease=None))

    def to_json(self) -> dict[str, Any]:
        """Write the body of a create. Not in it: the key, which is a header, and the files."""
        cwd, files = self.commands.cwd, self.files
        return {
            **template_body(self.image, self.resources),
            **self.commands.to_json(),
            **({"make_cwd": True} if cwd and files and request.made_by_files(cwd, files) else {}),
            **({"labels": label_rules.checked(self.labels)} if self.labels else {}),
            **self.lifetime.to_json(),
            **({} if self.egress is None else {"egress": wish_to_json(self.egress)}),
            "start_timeout_ms": milliseconds("start_timeout", self.start_timeout),
        }


def template_body(image: str, resources: Resources) -> dict[str, Any]:
    """Write the part of a create's body that is also a pool's template.

    Raises:
        InvalidArgument: this cannot be the name of an image, or a resource is invalid.
    """
    if not isinstance(image, str) or not image or any(letter.isspace() for letter in image):
        raise InvalidArgument(f"image {image!r} is not the name of an image, like 'python:3.12-slim'")
    return {"image": image, **resources.to_json()}


def _taken(kind: type[_Value], options: dict[str, Any]) -> _Value:
    """Make a value of the options that are its fields, and take those out."""
    names = [item.name for item in fields(kind)]  # type: ignore[arg-type]
    return kind(**{name: options.pop(name) for name in names if name in options})
