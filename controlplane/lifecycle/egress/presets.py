"""Presets of network policies: the installation's, those that operators declare for everybody, and owners' own."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal

import structlog
from pydantic import StringConstraints, ValidationError

from controlplane.cluster.documents import Document, Documents
from controlplane.egress import CUSTOM, OFFLINE_NAME, EgressOptions, EgressPolicy, PresetName, compiled
from controlplane.errors import Problem, meant

# Of one owner: each is an object of the cluster.
MOST_PRESETS: Final = 100
# A colon is for parts of the platform.
OWNER: Final = r"^[^:,/\x00-\x1f\x7f]*$"

Source = Literal["installation", "operators", "own"]
# The owner of what holds for everybody.
EVERYBODY: Final = ""


class DeclaredPreset(EgressPolicy):
    """A preset as it is declared in the cluster.

    Attributes:
        owner: whose it is; empty: everybody's.
        name: by which sandboxes ask for it; empty: the object's name.
    """

    owner: Annotated[str, StringConstraints(max_length=128, pattern=OWNER)] = ""
    name: PresetName | None = None

    @property
    def policy(self) -> EgressPolicy:
        """The policy alone."""
        return EgressPolicy.model_validate({name: getattr(self, name) for name in EgressPolicy.model_fields})


@dataclass(frozen=True, slots=True)
class Preset:
    """A preset as an owner sees it."""

    name: str
    source: Source
    policy: EgressPolicy


class Presets:
    """All presets, cached at this replica; ``run`` keeps them current.

    Args:
        documents: where operators and owners declare theirs.
        options: have those of the settings.
    """

    def __init__(self, documents: Documents, options: EgressOptions) -> None:
        self._documents = documents
        self._installation = options.presets
        self._dated = options.dated
        self._declared: Mapping[tuple[str, str], EgressPolicy] = {}
        self._refused: dict[str, str] = {}  # document name -> the version that could not be read
        self._log = structlog.get_logger("egress")

    def of(self, owner: str) -> Callable[[str], EgressPolicy | None]:
        """What looks a name up for an owner: its own presets, then everybody's, then the installation's."""

        def look(name: str) -> EgressPolicy | None:
            for whose in (owner, EVERYBODY):
                if (found := self._declared.get((whose, name))) is not None:
                    return found
            return self._installation.get(name)

        return look

    def missing(self, owner: str, name: str) -> Problem:
        """What an owner is told that asks for a preset that there is not: with the nearest name, if one is alike."""
        near = meant(name, [one.name for one in self.list(owner)])
        detail = f"there is no egress preset {name}{near or '; `rollbox egress preset list` shows them'}"
        return Problem("not_found", detail, preset=name)

    def list(self, owner: str) -> Sequence[Preset]:
        """All that an owner may ask for, by name."""
        found = {name: Preset(name, "installation", policy) for name, policy in self._installation.items()}
        others: tuple[tuple[str, Source], ...] = ((EVERYBODY, "operators"), (owner, "own"))
        for whose, source in others:
            found |= {name: Preset(name, source, one) for (by, name), one in self._declared.items() if by == whose}
        return [one for _, one in sorted(found.items())]

    async def open(self) -> None:
        """Reads them for the first time; a cluster without the definition has none."""
        try:
            await self._take(await self._documents.list("egress"))
        except Problem as problem:
            self._log.warning("egress presets cannot be read", code=problem.code, detail=problem.detail)

    async def run(self) -> None:
        """Follows every change until cancelled."""
        async for documents in self._documents.watch("egress"):
            await self._take(documents)

    async def declare(self, owner: str, name: str, policy: EgressPolicy) -> bool:
        """Puts an owner's preset in force, in the place of the one before; whether it is a new one.

        Sandboxes that have it keep the rules that it had when it was set.

        Raises:
            Problem: conflict, the name is one of everybody's; invalid_argument, it includes what there is not;
                quota_exceeded; the cluster's.
        """
        if name == CUSTOM or name in self._installation or (EVERYBODY, name) in self._declared:
            raise Problem("conflict", f"{name} is a preset of this installation: choose another name", preset=name)
        own = [one for by, one in self._declared if by == owner]
        if name not in own and len(own) >= MOST_PRESETS:
            detail = f"{owner} has {MOST_PRESETS} egress presets, no more are taken: delete one first"
            raise Problem("quota_exceeded", detail, limit=MOST_PRESETS)
        try:
            compiled(name, policy, self.of(owner), self._dated)
        except ValueError as error:
            raise Problem("invalid_argument", f"the network policy: {error}", field="include") from error
        body = {
            "owner": owner,
            "name": name,
            **policy.model_dump(mode="json", exclude_none=True, exclude_defaults=True),
        }
        await self._documents.put("egress", _document(owner, name), body)
        await self.open()
        return name not in own

    async def remove(self, owner: str, name: str) -> bool:
        """Removes an owner's preset; whether there was one. Sandboxes that have it keep it.

        Raises:
            Problem: the cluster's.
        """
        removed = await self._documents.remove("egress", _document(owner, name))
        await self.open()
        return removed

    async def _take(self, documents: Sequence[Document]) -> None:
        declared: dict[tuple[str, str], EgressPolicy] = {}
        for document in documents:
            preset = await self._read(document)
            if preset is not None:
                declared[preset.owner, preset.name or document.name] = preset.policy
        there = {document.name for document in documents}
        self._refused = {name: version for name, version in self._refused.items() if name in there}
        self._declared = declared

    async def _read(self, document: Document) -> DeclaredPreset | None:
        try:
            preset = DeclaredPreset.model_validate(dict(document.body))
            if (preset.name or document.name) in (OFFLINE_NAME, CUSTOM):
                raise ValueError(f"the name {preset.name or document.name} has its meaning already")
        except ValueError as error:
            await self._refuse(document, error)
            return None
        return preset

    async def _refuse(self, document: Document, error: ValueError) -> None:
        if self._refused.get(document.name) == document.version:
            return
        self._refused[document.name] = document.version
        found = error.errors()[:3] if isinstance(error, ValidationError) else ()
        why = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in found) or str(error)
        self._log.error("invalid egress preset ignored", name=document.name, detail=why)
        await self._documents.status("egress", document.name, {"invalid": why})


def _document(owner: str, name: str) -> str:
    """The name of the object of an owner's preset."""
    return f"{name}-{hashlib.sha256(owner.encode()).hexdigest()[:16]}"
