"""Data sets and scratch of creates: which there are, who may mount them, and what a start is to mount."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import structlog
from pydantic import ValidationError

from controlplane.cluster import Bound, DatasetAt, Mounts, ScratchAt
from controlplane.cluster.documents import Document, Documents
from controlplane.errors import Problem, meant
from controlplane.model import GROUP, Mount, Sandbox, SandboxSpec, scratch_key
from controlplane.model.dataset import DatasetSpec

MOST_DATASETS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Dataset:
    """A data set as it is declared, and as it is.

    Attributes:
        trouble: why it cannot be mounted now; empty: it can.
    """

    name: str
    spec: DatasetSpec
    trouble: str = ""


class Datasets:
    """All data sets, cached at this replica; ``run`` keeps them current.

    Args:
        documents: where operators declare them.
        mounts: the backend's part; None: it mounts nothing.
        installation: those of the settings, which no document replaces.
    """

    def __init__(self, documents: Documents, mounts: Mounts | None, installation: Mapping[str, DatasetSpec]) -> None:
        self._documents = documents
        self._mounts = mounts
        self._installation = dict(installation)
        self._declared: dict[str, DatasetSpec] = {}
        self._refused: dict[str, str] = {}  # document name -> the version that could not be read
        self._log = structlog.get_logger("datasets")

    async def open(self) -> None:
        """Reads them for the first time; a cluster without the definition has none."""
        try:
            await self._take(await self._documents.list("datasets"))
        except Problem as problem:
            self._log.warning("data sets cannot be read", code=problem.code, detail=problem.detail)

    async def run(self) -> None:
        """Follows every change until cancelled."""
        async for documents in self._documents.watch("datasets"):
            await self._take(documents)

    async def refused(self, owner: str, spec: SandboxSpec) -> Problem | None:
        """Why a sandbox of this owner cannot have the mounts of a spec; None: it can. Cost: nothing without mounts."""
        try:
            for path, mount in spec.mounts.items():
                await self._check(owner, spec, path, mount)
        except Problem as problem:
            return problem
        return None

    def check_pool(self, spec: SandboxSpec) -> None:
        """Refuses data sets that no pool's sandboxes can have, of a declared template.

        Raises:
            Problem: not_found, unsupported, permission_denied.
        """
        for mount in spec.mounts.values():
            self._allowed_here().check_dataset(self._found("", mount.dataset, everybodys=True))

    def bound(self, sandbox: Sandbox) -> Sequence[Bound]:
        """What a start of this sandbox is to mount.

        Raises:
            Problem: dataset_unavailable, one is not declared any more.
        """
        return [self._bound(sandbox, path, mount) for path, mount in sorted(sandbox.spec.mounts.items())]

    async def list(self, owner: str, *, operator: bool = False) -> Sequence[Dataset]:
        """All that an owner may mount, by name; for an operator all there are.

        Raises:
            Problem: the cluster does not answer.
        """
        return [await self._told(name, one) for name, one in self._all().items() if operator or one.allows(owner)]

    async def get(self, owner: str, name: str, *, operator: bool = False) -> Dataset:
        """One data set.

        Raises:
            Problem: not_found, permission_denied; the cluster does not answer.
        """
        return await self._told(name, self._found(owner, name, everybodys=operator))

    async def put(self, name: str, spec: DatasetSpec) -> bool:
        """Declares a data set, in the place of the one before; whether it is new.

        Sandboxes that have it keep what they have mounted.

        Raises:
            Problem: unsupported, permission_denied: it cannot be mounted here; conflict: it is one of the settings;
                quota_exceeded; the cluster's.
        """
        if name in self._installation:
            raise Problem("conflict", f"{name} is a data set of this installation's settings: change it there")
        self._allowed_here().check_dataset(spec)
        fresh = name not in self._declared
        if fresh and len(self._declared) >= MOST_DATASETS:
            raise Problem("quota_exceeded", f"there are {MOST_DATASETS} data sets: remove one first")
        await self._documents.put("datasets", name, spec.model_dump(mode="json"))
        await self.open()
        return fresh

    async def remove(self, name: str) -> bool:
        """Removes a data set; whether there was one. Its files stay, and sandboxes that have it keep it.

        Raises:
            Problem: conflict: it is one of the settings; the cluster's.
        """
        if name in self._installation:
            raise Problem("conflict", f"{name} is a data set of this installation's settings: remove it there")
        removed = await self._documents.remove("datasets", name)
        await self.open()
        return removed

    async def _check(self, owner: str, spec: SandboxSpec, path: str, mount: Mount) -> None:
        mounts = self._allowed_here()
        if mount.scratch:
            await mounts.check_scratch(_key(owner, spec, mount), mount.scratch_bytes)
            return
        found = self._found(owner, mount.dataset)
        mounts.check_dataset(found)
        if trouble := await mounts.trouble(found):
            raise _unavailable(mount.dataset, path, trouble)

    def _allowed_here(self) -> Mounts:
        if self._mounts is None:
            raise Problem("unsupported", "this installation mounts no data sets and no scratch", option="mounts")
        return self._mounts

    def _found(self, owner: str, name: str, *, everybodys: bool = False) -> DatasetSpec:
        found = self._all().get(name)
        if found is None:
            near = meant(name, [one for one, spec in self._all().items() if everybodys or spec.allows(owner)])
            detail = f"there is no data set {name}{near or '; `rollbox dataset list` shows them'}"
            raise Problem("not_found", detail, dataset=name)
        if not everybodys and not found.allows(owner):
            detail = f"the data set {name} is not for {owner}: an operator may add it to its owners"
            raise Problem("permission_denied", detail, dataset=name)
        return found

    def _bound(self, sandbox: Sandbox, path: str, mount: Mount) -> Bound:
        if mount.scratch:
            return ScratchAt(path, _key(sandbox.owner, sandbox.spec, mount), mount.scratch_bytes)
        if (found := self._all().get(mount.dataset)) is None:
            raise _unavailable(mount.dataset, path, "it is not declared any more")
        return DatasetAt(path, mount.dataset, found)

    def _all(self) -> Mapping[str, DatasetSpec]:
        return dict(sorted({**self._declared, **self._installation}.items()))

    async def _told(self, name: str, spec: DatasetSpec) -> Dataset:
        try:
            mounts = self._allowed_here()
            mounts.check_dataset(spec)
        except Problem as problem:
            return Dataset(name, spec, problem.detail)
        return Dataset(name, spec, await mounts.trouble(spec))

    async def _take(self, documents: Sequence[Document]) -> None:
        read = {document.name: await self._read(document) for document in documents}
        self._refused = {name: version for name, version in self._refused.items() if name in read}
        self._declared = {name: spec for name, spec in read.items() if spec is not None}

    async def _read(self, document: Document) -> DatasetSpec | None:
        try:
            return DatasetSpec.model_validate(dict(document.body))
        except ValidationError as error:
            if self._refused.get(document.name) != document.version:
                self._refused[document.name] = document.version
                why = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()[:3])
                self._log.error("invalid data set ignored", name=document.name, detail=why)
                await self._documents.status("datasets", document.name, {"invalid": why})
            return None


def _key(owner: str, spec: SandboxSpec, mount: Mount) -> str:
    return scratch_key(owner, spec.labels.get(GROUP, ""), mount.scratch)


def _unavailable(name: str, path: str, trouble: str) -> Problem:
    detail = f"the data set {name}, which is to be mounted at {path}, cannot be had: {trouble}"
    return Problem("dataset_unavailable", detail, dataset=name)
