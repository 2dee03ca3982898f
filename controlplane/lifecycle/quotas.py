"""Quotas as operators declare them: read from the cluster's documents, checked, and told whoever admits."""

import hashlib
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Final

import structlog
from pydantic import Field, StringConstraints, ValidationError

from controlplane.cluster.documents import NONE_YET, Document, Documents
from controlplane.errors import Problem
from controlplane.lifecycle.queue import Place
from controlplane.model import RESOURCES, Limits, Quota, Sandbox, Usage
from controlplane.model.spec import Closed

# The owner of the quota for everybody who has none of his own.
EVERYBODY: Final = "*"
_EVERYBODYS_NAME: Final = "everybody"
# Of a change that others change under its hands.
TRIES: Final = 4
_DNS_LABEL: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
MOST: Final = 1 << 50
OWNER: Final = r"^[^:,/\x00-\x1f\x7f]+$"

# Not 0: "none at all" is said by taking keys away, and 0 for "no limit" would be read as its opposite.
_Limit = Annotated[int | None, Field(default=None, ge=1, le=MOST)]


class DeclaredQuota(Closed):
    """What an operator declares for one owner; what is left out has no limit. cpu and memory count as requested."""

    owner: Annotated[str, StringConstraints(min_length=1, max_length=128, pattern=OWNER)]
    sandboxes: _Limit = None
    cpu_millicores: _Limit = None
    memory_bytes: _Limit = None
    gpu: _Limit = None
    starting: _Limit = None

    @property
    def quota(self) -> Quota:
        """As admissions want it: 0 is no limit."""
        return Quota(**{name: getattr(self, name) or 0 for name in RESOURCES})


@dataclass(frozen=True, slots=True)
class Standing:
    """Where an owner stands.

    Attributes:
        declared: the quota that holds for him; None: none does.
        total, in_all: sandboxes of all owners together, at most (0 = no limit) and now.
        waiting: his creates that wait at this replica.
        places: the first of them, in order, with how long each will wait as far as anybody knows (ms).
        unplaced: the owner's sandboxes that this replica starts and no node takes, with the reason, oldest first.
    """

    owner: str
    declared: DeclaredQuota | None
    used: Usage
    total: int
    in_all: int
    waiting: int
    places: Sequence[tuple[Place, int | None]]
    unplaced: Sequence[tuple[Sandbox, Problem]] = ()


class Quotas:
    """The declared quotas, as this replica knows them; ``run`` keeps them current.

    Args:
        documents: where they are declared.
        total: sandboxes of all owners together; 0 = no limit.
    """

    def __init__(self, documents: Documents, total: int) -> None:
        self._documents = documents
        self._total = total
        self._declared: Mapping[str, DeclaredQuota] = {}
        self._versions: Mapping[str, Mapping[str, str]] = {}  # owner -> name and version of what declares his
        self._refused: dict[str, str] = {}  # name -> the version that could not be read
        self._reported: dict[str, Mapping[str, int]] = {}
        self._listeners: list[Callable[[], None]] = []
        self._log = structlog.get_logger("quotas")

    @property
    def declared(self) -> Mapping[str, DeclaredQuota]:
        """All that are in force, by owner; ``*`` is everybody else's."""
        return self._declared

    def limits(self, owner: str) -> Limits:
        """What an admission of this owner has to keep."""
        found = self.of(owner)
        return Limits(self._total, Quota() if found is None else found.quota)

    def of(self, owner: str) -> DeclaredQuota | None:
        """The quota of this owner: his own, else everybody's; a pool has none."""
        return self._declared.get(owner) or (None if ":" in owner else self._declared.get(EVERYBODY))

    def listen(self, changed: Callable[[], None]) -> None:
        """Has ``changed`` called after every change."""
        self._listeners.append(changed)

    async def open(self) -> None:
        """Reads them for the first time: before that nothing may be admitted.

        Raises:
            Problem: they cannot be read.
        """
        await self._take(await self._documents.list("quotas"))

    async def run(self) -> None:
        """Follows every change until cancelled."""
        async for documents in self._documents.watch("quotas"):
            await self._take(documents)

    async def report(self, usage: Callable[[str], Awaitable[Usage]]) -> None:
        """Writes what their owners use beside the declared quotas, where it has changed; not for everybody's."""
        for owner, names in [*self._versions.items()]:
            if owner == EVERYBODY:
                continue
            used = asdict(await usage(owner))
            for name in names:
                if self._reported.get(name) != used:
                    self._reported[name] = used
                    await self._documents.status("quotas", name, {"used": used})

    async def declare(self, wish: DeclaredQuota) -> None:
        """Puts a quota in force, in the place of the owner's before; it ends nothing that runs.

        One that was declared past the API keeps its name: two for one owner would both hold.

        Raises:
            Problem: the cluster does not take it.
        """
        for name in self._versions.get(wish.owner) or (_name(wish.owner),):
            await self._documents.put("quotas", name, wish.model_dump(exclude_none=True))
        await self.open()

    async def change(self, owner: str, limits: Mapping[str, int | None]) -> None:
        """Changes some limits of an owner's quota, None to none at all, and leaves the others as they are.

        Raises:
            Problem: the cluster does not take it; conflict, somebody else changes it again and again.
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
        """Takes an owner's quota back; whether he had one of his own."""
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
        changed = declared != self._declared
        self._declared, self._versions = declared, versions
        if changed:
            self._log.info("quotas in force", owners=len(declared))
            for listener in self._listeners:
                listener()

    async def _read(self, document: Document) -> DeclaredQuota | None:
        try:
            return DeclaredQuota.model_validate(dict(document.body))
        except ValidationError as error:
            if self._refused.get(document.name) != document.version:
                self._refused[document.name] = document.version
                why = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()[:3])
                self._log.error("a quota that cannot be read is not in force", name=document.name, detail=why)
                await self._documents.status("quotas", document.name, {"invalid": why})
            return None


def _strictest(one: DeclaredQuota | None, other: DeclaredQuota) -> DeclaredQuota:
    """Both hold, where an owner was given two."""
    if one is None:
        return other
    least: dict[str, Any] = {}
    for name in RESOURCES:
        limits = [limit for limit in (getattr(one, name), getattr(other, name)) if limit is not None]
        least[name] = min(limits, default=None)
    return DeclaredQuota(owner=one.owner, **least)


def _name(owner: str) -> str:
    """The document's name: the owner's where that can be one."""
    if owner == EVERYBODY:
        return _EVERYBODYS_NAME
    if _DNS_LABEL.fullmatch(owner) and owner != _EVERYBODYS_NAME:
        return owner
    return f"owner-{hashlib.sha256(owner.encode()).hexdigest()[:16]}"
