"""Quotas as operators declare them: read from the cluster's documents, validated, and given to admission."""

import hashlib
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Annotated, Any, Final

import structlog
from pydantic import Field, StringConstraints, ValidationError

from controlplane.cluster.documents import NONE_YET, Document, Documents
from controlplane.egress import OwnerLimits
from controlplane.errors import Problem
from controlplane.lifecycle.waiting import Place
from controlplane.model import RESOURCES, Limits, Quota, Sandbox, Usage
from controlplane.model.base import Closed
from controlplane.telemetry import QuotaLevels

# The owner in the default quota, which applies to every owner without a quota of its own.
EVERYBODY: Final = "*"
_EVERYBODYS_NAME: Final = "everybody"
# Tries of a change that conflicts with concurrent changes.
TRIES: Final = 4
_DNS_LABEL: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
MOST: Final = 1 << 50
# Of one owner at one egress replica.
MOST_CONNECTIONS: Final = 1_000_000
# As of a policy: with less, not even a refusal gets through in a second.
LEAST_BYTES_PER_SECOND: Final = 1_024
OWNER: Final = r"^[^:,/\x00-\x1f\x7f]+$"

# Not 0, which could be read as "none at all" or as "no limit". An owner that may have nothing has its API keys removed.
_Limit = Annotated[int | None, Field(default=None, ge=1, le=MOST)]


def _is_none(value: object) -> bool:
    return value is None


# Left out where they are none: a control plane of a version without them reads the quota all the same.
_Connections = Annotated[int | None, Field(default=None, ge=1, le=MOST_CONNECTIONS, exclude_if=_is_none)]
_Rate = Annotated[int | None, Field(default=None, ge=LEAST_BYTES_PER_SECOND, le=MOST, exclude_if=_is_none)]
_Bytes = Annotated[int | None, Field(default=None, ge=1, le=MOST, exclude_if=_is_none)]

# What a quota limits: what sandboxes use, the bytes of committed images, and the network.
EGRESS_LIMITS: Final = tuple(f"egress_{one.name}" for one in fields(OwnerLimits))
LIMITS: Final = (*RESOURCES, "commit_bytes", *EGRESS_LIMITS)


class DeclaredQuota(Closed):
    """The quota that an operator declares for one owner. An omitted field has no limit; cpu and memory are requests.

    Attributes:
        commit_bytes: of images that are made of sandboxes; omitted: the installation's limit holds.
        egress_connections: open at once from all the owner's sandboxes, at each egress replica; omitted: the replica's
            own limit holds.
        egress_connections_per_second, egress_bytes_per_second, egress_daily_bytes: of all the owner's sandboxes, at
            each egress replica (``OwnerLimits``).
    """

    owner: Annotated[str, StringConstraints(min_length=1, max_length=128, pattern=OWNER)]
    sandboxes: _Limit = None
    cpu_millicores: _Limit = None
    memory_bytes: _Limit = None
    gpu: _Limit = None
    starting: _Limit = None
    commit_bytes: _Limit = None
    egress_connections: _Connections = None
    egress_connections_per_second: _Connections = None
    egress_bytes_per_second: _Rate = None
    egress_daily_bytes: _Bytes = None

    @property
    def quota(self) -> Quota:
        """The quota as admission uses it: 0 is no limit."""
        return Quota(**{name: getattr(self, name) or 0 for name in RESOURCES})


@dataclass(frozen=True, slots=True)
class QuotaUse:
    """An owner's quota, use and waiting creates.

    Attributes:
        declared: the quota that applies to the owner; None: none.
        used: what the owner uses.
        total, in_all: sandboxes of all owners together, at most (0 = no limit) and now.
        waiting: how many of the owner's creates wait for room, at all replicas.
        places: the first of these, in order.
        unplaced: the owner's starts that fit on no node, with the reason and the estimated wait (ms; None: not known),
            those at this replica first.
    """

    owner: str
    declared: DeclaredQuota | None
    used: Usage
    total: int
    in_all: int
    waiting: int
    places: Sequence[Place]
    unplaced: Sequence[tuple[Sandbox, Problem, int | None]] = ()


class Quotas:
    """The declared quotas, cached at this replica; ``run`` keeps them current.

    Args:
        documents: where they are declared.
        total: sandboxes of all owners together; 0 = no limit.
        egress: whether egress is installed, which enforces the limits of the network.
    """

    def __init__(self, documents: Documents, total: int, *, egress: bool = True) -> None:
        self._documents = documents
        self._total = total
        self._declared: Mapping[str, DeclaredQuota] = {}
        self._versions: Mapping[str, Mapping[str, str]] = {}  # owner -> version of each document, by name
        self._enforced = LIMITS if egress else tuple(name for name in LIMITS if name not in EGRESS_LIMITS)
        self._refused: dict[str, str] = {}  # document name -> the version that could not be read
        self._unenforced: dict[str, str] = {}  # the same of those with a limit that nothing here enforces
        self._reported: dict[str, Mapping[str, int]] = {}
        self._used: dict[str, Mapping[str, int]] = {}
        self._listeners: list[Callable[[], None]] = []
        self._log = structlog.get_logger("quotas")

    @property
    def declared(self) -> Mapping[str, DeclaredQuota]:
        """All quotas in force, by owner; ``*`` is the default quota."""
        return self._declared

    def limits(self, owner: str) -> Limits:
        """The limits for admissions of this owner."""
        found = self.of(owner)
        return Limits(self._total, Quota() if found is None else found.quota)

    def of(self, owner: str) -> DeclaredQuota | None:
        """The quota of this owner: its own, else the default; pools (owners with a colon) have none."""
        return self._declared.get(owner) or (None if ":" in owner else self._declared.get(EVERYBODY))

    def egress(self, owner: str) -> OwnerLimits:
        """What the owner's sandboxes may use of the network together."""
        return OwnerLimits.of(self.of(owner))

    def levels(self) -> Mapping[str, QuotaLevels]:
        """What owners with a quota of their own use, as ``report`` has read it, and may use."""
        return {
            owner: QuotaLevels(used, asdict(quota.quota))
            for owner, used in self._used.items()
            if (quota := self._declared.get(owner)) is not None
        }

    def listen(self, changed: Callable[[], None]) -> None:
        """Calls ``changed`` after every change of a quota."""
        self._listeners.append(changed)

    async def open(self) -> None:
        """Reads the quotas for the first time; nothing may be admitted before.

        Raises:
            Problem: they cannot be read.
        """
        await self._take(await self._documents.list("quotas"))

    async def run(self) -> None:
        """Follows every change until cancelled."""
        async for documents in self._documents.watch("quotas"):
            await self._take(documents)

    async def report(self, usage: Callable[[str], Awaitable[Usage]]) -> None:
        """Writes the owners' use into the status of their quota documents, where it has changed.

        Not for the default quota, which belongs to no single owner.
        """
        self._used = {owner: used for owner, used in self._used.items() if owner in self._versions}
        for owner, names in [*self._versions.items()]:
            if owner == EVERYBODY:
                continue
            used = asdict(await usage(owner))
            self._used[owner] = used
            for name in names:
                if self._reported.get(name) != used:
                    self._reported[name] = used
                    await self._documents.status("quotas", name, {"used": used})

    async def declare(self, wish: DeclaredQuota) -> None:
        """Puts a quota in force; it replaces the owner's previous one, and ends nothing that runs.

        A document that was not made by this API keeps its name: a second document for the same owner would apply too.

        Raises:
            Problem: the cluster rejects it.
        """
        for name in self._versions.get(wish.owner) or (_name(wish.owner),):
            await self._documents.put("quotas", name, wish.model_dump(exclude_none=True))
        await self.open()

    async def change(self, owner: str, limits: Mapping[str, int | None]) -> None:
        """Changes some limits of an owner's quota and keeps the others; None removes a limit.

        Raises:
            Problem: the cluster rejects it; conflict, it was changed concurrently at every try.
        """
        for attempt in range(TRIES):
            await self.open()
            before = self._declared.get(owner, DeclaredQuota(owner=owner))
            after = DeclaredQuota.model_validate({**before.model_dump(), **limits})
            try:
                for name, version in (self._versions.get(owner) or {_name(owner): NONE_YET}).items():
                    await self._documents.put("quotas", name, after.model_dump(exclude_none=True), version)
                break
            except Problem as problem:
                if problem.code != "conflict" or attempt == TRIES - 1:
                    raise
        await self.open()

    async def take_back(self, owner: str) -> bool:
        """Removes an owner's quota; whether the owner had one of its own."""
        removed = [await self._documents.remove("quotas", name) for name in self._versions.get(owner, ())]
        await self.open()
        return any(removed)

    async def _take(self, documents: Sequence[Document]) -> None:
        declared: dict[str, DeclaredQuota] = {}
        versions: dict[str, dict[str, str]] = {}
        for document in documents:
            quota = await self._read(document)
            if quota is not None:
                versions.setdefault(quota.owner, {})[document.name] = document.version
                declared[quota.owner] = _strictest(declared.get(quota.owner), quota)
        there = {document.name for document in documents}
        self._refused = {name: version for name, version in self._refused.items() if name in there}
        self._reported = {name: used for name, used in self._reported.items() if name in there}
        self._unenforced = {name: version for name, version in self._unenforced.items() if name in there}
        changed = declared != self._declared
        self._declared, self._versions = declared, versions
        if changed:
            self._log.info("quotas changed", owners=len(declared))
            for listener in self._listeners:
                listener()

    async def _read(self, document: Document) -> DeclaredQuota | None:
        try:
            quota = DeclaredQuota.model_validate(dict(document.body))
        except ValidationError as error:
            if self._refused.get(document.name) != document.version:
                self._refused[document.name] = document.version
                why = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()[:3])
                self._log.error("invalid quota ignored", name=document.name, detail=why)
                await self._documents.status("quotas", document.name, {"invalid": why})
            return None
        await self._tell_unenforced(document, quota)
        return quota

    async def _tell_unenforced(self, document: Document, quota: DeclaredQuota) -> None:
        # The rest of it stays in force: an owner without a limit for one thing is no owner without limits.
        idle = [name for name in LIMITS if name not in self._enforced and getattr(quota, name) is not None]
        if idle and self._unenforced.get(document.name) != document.version:
            self._unenforced[document.name] = document.version
            why = f"{', '.join(idle)}: egress is not installed here, so nothing enforces it"
            self._log.warning("a quota has a limit that is not enforced", name=document.name, detail=why)
            await self._documents.status("quotas", document.name, {"unenforced": why})


def _strictest(one: DeclaredQuota | None, other: DeclaredQuota) -> DeclaredQuota:
    """The quota of an owner with two documents: the lower of each limit."""
    if one is None:
        return other
    least: dict[str, Any] = {}
    for name in LIMITS:
        limits = [limit for limit in (getattr(one, name), getattr(other, name)) if limit is not None]
        least[name] = min(limits, default=None)
    return DeclaredQuota(owner=one.owner, **least)


def _name(owner: str) -> str:
    """The document's name: the owner's if that is a valid name, else a hash of it."""
    if owner == EVERYBODY:
        return _EVERYBODYS_NAME
    if _DNS_LABEL.fullmatch(owner) and owner != _EVERYBODYS_NAME:
        return owner
    return f"owner-{hashlib.sha256(owner.encode()).hexdigest()[:16]}"
