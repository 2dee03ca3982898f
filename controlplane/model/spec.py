"""``SandboxSpec``: what a create may request, with all limits and validation. Unknown fields are refused."""

import hashlib
import json
import re
from operator import attrgetter
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator
from pydantic.config import JsonDict

from controlplane.egress import NAME, PolicyOrPreset
from controlplane.images import parse
from controlplane.model import mounts as mount_rules
from controlplane.model.base import MIB, Closed
from controlplane.model.mounts import Mount
from controlplane.model.units import in_words

MAX_ENV_BYTES: Final = 256 * 1024  # a guess: a quarter of what Linux allows for argv and environment together
MAX_LABELS: Final = 64
MAX_TTL_MS: Final = 7 * 24 * 3_600_000
MIN_START_MS: Final = 100
MAX_START_MS: Final = 3_600_000
MAX_NODE_LABELS: Final = 16
# Size of the cache of template hashes; every change of a warm sandbox's state needs the hash of its template.
MOST_HASHES: Final = 1024
# The label with the name of a sandbox's group.
GROUP: Final = "rollbox.group"

_LABEL_KEY: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._/-]{0,126}[A-Za-z0-9])?")
# JSON can contain a lone surrogate (half a character), which cannot be encoded as UTF-8.
_HALF: Final = re.compile(r"[\ud800-\udfff]")
_LABEL_VALUE: Final = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]{0,256}")
_ENV_NAME: Final = re.compile(r"[^=\x00]{1,256}")
# Kubernetes' syntax of label keys: an optional DNS name and a slash, then at most 63 characters.
_NODE_KEY: Final = re.compile(r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_NODE_VALUE: Final = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")


def _image(name: str) -> str:
    # The grammar also keeps `..` out: the name becomes part of a URL path of the Docker Engine API.
    parse(name)
    return name


ImageName = Annotated[str, StringConstraints(min_length=1, max_length=512), AfterValidator(_image)]


def _env(env: dict[str, str]) -> dict[str, str]:
    for name, value in env.items():
        if not _ENV_NAME.fullmatch(name):
            raise ValueError(f"the name {name[:64]!r} must have 1 to 256 characters, none of them '=' or NUL")
        if "\0" in value:
            raise ValueError(f"the value of {name!r} must not contain NUL")
    size_bytes = sum(len(name.encode()) + len(value.encode()) + 2 for name, value in env.items())
    if size_bytes > MAX_ENV_BYTES:
        raise ValueError(f"{size_bytes} bytes of names and values are more than {MAX_ENV_BYTES}")
    return env


def _labels(labels: dict[str, str]) -> dict[str, str]:
    if len(labels) > MAX_LABELS:
        raise ValueError(f"{len(labels)} labels are more than {MAX_LABELS}")
    for key, value in labels.items():
        if not _LABEL_KEY.fullmatch(key):
            raise ValueError(f"the key {key[:128]!r} must be 1 to 128 of A-Za-z0-9._/-, alphanumeric at both ends")
        if not _LABEL_VALUE.fullmatch(value):
            raise ValueError(
                f"the value of {key!r} must have at most 256 characters, no control characters, no lone surrogates"
            )
    return labels


def _node_selector(selector: dict[str, str]) -> dict[str, str]:
    if len(selector) > MAX_NODE_LABELS:
        raise ValueError(f"{len(selector)} labels of nodes are more than {MAX_NODE_LABELS}")
    for key, value in selector.items():
        if not _NODE_KEY.fullmatch(key):
            raise ValueError(f"{key[:128]!r} is not the name of a node label, like 'topology.kubernetes.io/zone'")
        if not _NODE_VALUE.fullmatch(value):
            raise ValueError(f"the value {value[:128]!r} of {key!r} is not that of a node label: 63 of A-Za-z0-9._-")
    return selector


def _text(value: str) -> str:
    if "\0" in value:
        raise ValueError("must not contain NUL")
    if _HALF.search(value):
        raise ValueError("must be Unicode text, without lone surrogates")
    return value


def _absolute(path: str) -> str:
    if path and not path.startswith("/"):
        raise ValueError(f"{path[:128]!r} must be an absolute path")
    return _text(path)


def _left_out(schema: JsonDict) -> None:
    # Within the platform it is 0 until the installation's share is known; nobody may send that.
    schema.pop("default")


class Range(Closed):
    """What is set aside (``request``) and what may be used at most (``limit``).

    Without a request the installation sets a share of the limit aside, see ``Overcommit``.
    """

    request: int = Field(default=0, gt=0, exclude_if=lambda request: not request, json_schema_extra=_left_out)
    limit: int = Field(gt=0)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.request > self.limit:
            raise ValueError(f"request {self.request} must not be greater than limit {self.limit}")
        return self


def _within(name: str, least: int, most: int) -> AfterValidator:
    def check(value: Range) -> Range:
        if not least <= value.limit <= most:
            told = [in_words(f"_{name}", number) for number in (value.limit, least, most)]
            raise ValueError("limit {}: it must be from {} to {} {}".format(*told, name))
        return value

    return AfterValidator(check)


Millicores = Annotated[Range, _within("millicores", 10, 1_024_000)]
# At least 16 MiB: with less, no runtime image of rollbox can start an interpreter, and engines refuse less than 6 MiB.
MemoryBytes = Annotated[Range, _within("bytes", 16 * MIB, 1 << 42)]


# How a node gets the image: `full` before the sandbox starts; `lazy` while it runs, file by file; `auto`: lazy where
# the image and the nodes allow it.
Pull = Literal["auto", "full", "lazy"]


class Template(Closed):
    """What a sandbox is made of, and cannot be given later. Sizes in bytes, cpu in millicores (1000 = one core)."""

    image: ImageName
    # The SDK has the same defaults, so that a pool that leaves these out serves creates that leave them out.
    cpu_millicores: Millicores = Range(request=100, limit=2000)
    memory_bytes: MemoryBytes = Range(request=256 * MIB, limit=2048 * MIB)
    # None: the backend's default.
    pids_limit: int | None = Field(default=None, ge=8, le=1 << 22)
    disk_bytes: int | None = Field(default=None, ge=16 * MIB, le=1 << 44)
    gpu: int = Field(default=0, ge=0, le=16)
    node_selector: Annotated[dict[str, str], AfterValidator(_node_selector)] = Field(default_factory=dict)
    # Left out where nothing is asked for, as fingerprints have it.
    pull: Pull = Field(default="auto", exclude_if=lambda pull: pull == "auto")
    network: Annotated[str, StringConstraints(pattern=f"{NAME}|^$")] = Field(
        default="",
        exclude_if=lambda network: not network,
        description="a direct network of the installation, past egress; empty, the default, none",
    )
    # Part of the template: what is mounted is mounted before the sandbox's first process starts.
    mounts: Annotated[dict[str, Mount], AfterValidator(mount_rules.checked)] = Field(
        default_factory=dict,
        exclude_if=lambda mounts: not mounts,
        description="data sets and scratch by absolute path",
    )


class Lease(Closed):
    """The client that a sandbox belongs to: it ends when the client does not renew the lease in time.

    Attributes:
        name: of the owner's lease; many sandboxes may have the same.
        ttl_ms: how long the sandbox outlives the last renewal, or its own start.
    """

    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9])?$")]
    ttl_ms: int = Field(ge=1_000, le=MAX_TTL_MS)


def lease_fact(lease: Lease | None) -> str:
    """A lease as the cluster stores it with the sandbox; empty for none."""
    return "" if lease is None else f"{lease.ttl_ms}:{lease.name}"


def read_lease_fact(fact: str) -> Lease | None:
    """Reads what ``lease_fact`` wrote; None for any other text."""
    ttl_ms, _, name = fact.partition(":")
    try:
        return Lease(name=name, ttl_ms=int(ttl_ms))
    except ValueError:
        return None


class SandboxSpec(Template):
    """What one sandbox is to be: its template, and what is bound late. Times in ms."""

    env: Annotated[dict[str, str], AfterValidator(_env)] = Field(default_factory=dict)
    cwd: Annotated[str, StringConstraints(max_length=4096), AfterValidator(_absolute)] = ""
    make_cwd: bool = Field(
        default=False,
        exclude_if=lambda made: not made,
        description="make cwd where it is missing, as the user: files that are written next are there",
    )
    user: Annotated[str, StringConstraints(max_length=256, pattern=r"^[^\s:\x00]*(:[^\s:\x00]+)?$")] = ""
    labels: Annotated[dict[str, str], AfterValidator(_labels)] = Field(default_factory=dict)
    ttl_ms: int = Field(default=3_600_000, ge=1_000, le=MAX_TTL_MS)
    start_timeout_ms: int = Field(default=120_000, ge=MIN_START_MS, le=MAX_START_MS)
    # None: the installation's default.
    idle_timeout_ms: int | None = Field(default=None, ge=1_000, le=MAX_TTL_MS)
    lease: Lease | None = None
    # Not dumped with the spec: the record has it (``Sandbox.settings_digest``).
    settings_digest: Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{64})?$")] = Field(
        default="",
        exclude=True,
        description="from gateways only, instead of env, cwd and user, which they bind: a keyed digest of these",
    )

    # Not dumped with the spec: the record says which policy it is, and its rules are kept once for all that have it.
    egress: PolicyOrPreset | None = Field(
        default=None,
        exclude=True,
        description="what it may reach: the name of a preset, or a policy; null: the installation's default",
    )

    @model_validator(mode="after")
    def _digest_or_values(self) -> Self:
        if self.settings_digest and self.has_settings:
            raise ValueError("settings_digest stands for env, cwd and user; give either")
        if self.make_cwd and not self.cwd:
            raise ValueError("make_cwd is given without cwd: there is nothing to make")
        return self

    @property
    def has_settings(self) -> bool:
        """Whether it has late settings by value, not only their digest."""
        return bool(self.env or self.cwd or self.user)

    def fingerprint(self) -> str:
        """A hash over all fields but the lease, equal for requests that ask for the same sandbox.

        The lease is left out because a client that restarts and repeats a create with its key has another lease.
        """
        maps = {name: getattr(self, name) for name in ("env", "labels", "node_selector", "mounts")}
        unsorted = {name: dict(sorted(items.items())) for name, items in maps.items() if len(items) > 1}
        canonical = self.model_copy(update=unsorted) if unsorted else self
        unasked = {"idle_timeout_ms"} if self.idle_timeout_ms is None else set()
        text = canonical.model_dump_json(exclude={"lease", *unasked}) + self.settings_digest + self._egress_text()
        return hashlib.sha256(text.encode()).hexdigest()

    def _egress_text(self) -> str:
        """The policy that was asked for: by name, whatever the preset says now; empty for none."""
        match self.egress:
            case None:
                return ""
            case str() as name:
                return f"egress={name}"
            case policy:
                return f"egress={policy.model_dump_json()}"

    def template(self) -> Self:
        """The spec with defaults for all fields that a claim can set on a warm sandbox."""
        return type(self)(**{name: getattr(self, name) for name in Template.model_fields})

    def placement_key(self) -> str:
        """A key that is equal for sandboxes which fit on the same nodes: their requests and their node selector.

        The image is not part of it: the scheduler only prefers a node that has the image.
        """
        labels = ",".join(f"{key}={value}" for key, value in sorted(self.node_selector.items()))
        requests = (self.cpu_millicores.request, self.memory_bytes.request, self.disk_bytes or 0, self.gpu)
        return f"{'/'.join(map(str, requests))}/{labels}"

    def template_hash(self) -> str:
        """A hash of the template, 16 hex digits: a warm sandbox can serve this spec if it has the same hash.

        Cost: 2 us; 30 us for a template that is not cached.
        """
        template = (*_plain(self), *sorted(self.node_selector.items()), *sorted(self.mounts.items()))
        known = _HASHES.get(template)
        if known is None:
            canonical = self.model_dump(mode="json", include=set(Template.model_fields))
            text = json.dumps(canonical, sort_keys=True, separators=(",", ":"))
            known = hashlib.sha256(text.encode()).hexdigest()[:16]
            if len(_HASHES) >= MOST_HASHES:
                _HASHES.clear()
            _HASHES[template] = known
        return known


_NOT_PLAIN: Final = ("cpu_millicores", "memory_bytes", "node_selector", "mounts")
# Reads all fields of a template but those that are maps, as one hashable tuple.
_plain: Final = attrgetter(
    *(f"{name}.{end}" for name in ("cpu_millicores", "memory_bytes") for end in Range.model_fields),
    *(
        name
        for name in Template.model_fields
        if name not in ("cpu_millicores", "memory_bytes", "node_selector", "mounts")
    ),
)
_HASHES: Final[dict[tuple[object, ...], str]] = {}
