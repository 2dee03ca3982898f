"""Declaring, reading and removing pools for the API. A contradictory declaration is refused before it is stored."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError

from controlplane.cluster import Cluster
from controlplane.cluster.documents import Document, Documents
from controlplane.errors import Problem, meant
from controlplane.lifecycle.pools.declared import Declared, declared, fault
from controlplane.lifecycle.waiting.gates.quota import TOTAL_KNOB
from controlplane.model import Overcommit, SandboxSpec
from controlplane.model.pool import POOL_NAME, PoolChange, PoolSpec

MAX_POOLS: Final = 1_000
_NAME: Final = re.compile(POOL_NAME)


@dataclass(frozen=True, slots=True)
class Shown:
    """A pool's declaration and its status."""

    declared: Declared
    status: dict[str, Any]


class PoolDeclarations:
    """Declares, reads and removes pools by name.

    Args:
        documents: where pools are declared.
        cluster: checks whether it can run a template.
        max_sandboxes: of the whole installation; 0: no limit.
        overcommit: what is set aside for sandboxes that give limits alone.
        now: returns the current status of a pool; None where another replica plans.
        check_mounts: raises what speaks against what a template mounts.
        check_converts: raises ``unsupported`` where no image is converted, so that there are no recorded copies.
    """

    def __init__(
        self,
        documents: Documents,
        cluster: Cluster,
        max_sandboxes: int,
        overcommit: Overcommit,
        now: Callable[[str], dict[str, Any] | None],
        *,
        check_mounts: Callable[[SandboxSpec], None],
        check_converts: Callable[[], None],
    ) -> None:
        self._overcommit = overcommit
        self._documents = documents
        self._cluster = cluster
        self._max_sandboxes = max_sandboxes
        self._now = now
        self._check_mounts = check_mounts
        self._check_converts = check_converts

    async def put(self, name: str, spec: PoolSpec) -> tuple[Shown, bool]:
        """Declares a pool, or replaces its declaration; the pool, and whether it is new.

        Raises:
            Problem: invalid_argument, unsupported: it could not be kept filled; quota_exceeded: too many pools.
        """
        self._refuse(name, spec)
        known = {one.name: one for one in await self._documents.list("pools")}
        if name not in known and len(known) >= MAX_POOLS:
            detail = f"there are {len(known)} pools, and no more than {MAX_POOLS} are kept: delete one first"
            raise Problem("quota_exceeded", detail, used=len(known), limit=MAX_POOLS)
        version = await self._documents.put("pools", name, spec.model_dump(mode="json"))
        status = known[name].status if name in known else {}
        return Shown(Declared(name, version, spec), self._now(name) or dict(status)), name not in known

    async def change(self, name: str, wish: PoolChange) -> Shown:
        """Changes some fields of a pool's declaration.

        Raises:
            Problem: not_found; invalid_argument; conflict, it was changed concurrently, or the declaration is invalid.
        """
        before = (await self.get(name)).declared
        if before.spec is None:
            raise Problem("conflict", f"the pool {name!r} is not sound, declare it anew: {before.trouble}", name=name)
        try:
            spec = PoolSpec.model_validate({**before.spec.model_dump(), **wish.model_dump(exclude_none=True)})
        except ValidationError as error:
            raise Problem("invalid_argument", fault(error)) from error
        self._refuse(name, spec)
        version = await self._documents.put("pools", name, spec.model_dump(mode="json"), before.version)
        return Shown(Declared(name, version, spec), self._now(name) or {})

    async def get(self, name: str) -> Shown:
        """One pool.

        Raises:
            Problem: not_found.
        """
        document = await self._documents.get("pools", name)
        if document is None:
            near = meant(name[:64], [one.name for one in await self._documents.list("pools")])
            detail = f"there is no pool {name[:64]!r}{near or '; `rollbox pool list` shows them'}"
            raise Problem("not_found", detail, name=name[:64])
        return self._shown(document)

    async def list(self) -> Sequence[Shown]:
        """All pools, by name."""
        return [self._shown(one) for one in await self._documents.list("pools")]

    async def remove(self, name: str) -> bool:
        """Removes a pool; whether there was one. Its unclaimed sandboxes end; claimed ones are not affected."""
        return await self._documents.remove("pools", name)

    def _shown(self, document: Document) -> Shown:
        return Shown(declared(document), self._now(document.name) or dict(document.status))

    def _refuse(self, name: str, spec: PoolSpec) -> None:
        if not _NAME.fullmatch(name):
            detail = f"the name {name[:64]!r} must be 1 to 63 of a-z, 0-9 and '-', alphanumeric at both ends"
            raise Problem("invalid_argument", detail, field="name")
        try:
            self._cluster.check(self._overcommit.filled(spec.spec()))
        except Problem as problem:
            # Other failures may pass: a cluster without a free node may have one later.
            if problem.entry.fault == "caller":
                raise
        self._check_mounts(spec.spec())
        if spec.recording_of:
            self._check_converts()
        most = self._max_sandboxes
        if most and spec.max_warm > most:
            detail = f"max_warm {spec.max_warm} is more than the {most} sandboxes that there may be in all"
            detail = f"{detail}: {TOTAL_KNOB}"
            raise Problem("invalid_argument", detail, field="max_warm", limit=most, knob=TOTAL_KNOB)
