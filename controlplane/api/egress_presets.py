"""The routes of ``/v1/egress/presets``: presets of network policies; each owner may declare its own."""

from typing import Annotated, Self

from fastapi import APIRouter, Path, Response
from pydantic import BaseModel

from controlplane.api.context import Owner, Service
from controlplane.egress import NAME, EgressPolicy
from controlplane.lifecycle.egress.presets import Preset, Source

Name = Annotated[str, Path(pattern=NAME, max_length=40)]

router = APIRouter(tags=["egress"])


class PresetBody(BaseModel):
    """A preset.

    Attributes:
        source: ``installation``: of its settings; ``operators``: an object of the cluster for everybody; ``own``.
        policy: as it was written.
    """

    name: str
    source: Source
    policy: EgressPolicy

    @classmethod
    def of(cls, preset: Preset) -> Self:
        """From the lifecycle's view."""
        return cls(name=preset.name, source=preset.source, policy=preset.policy)


class PresetList(BaseModel):
    """All presets that you may ask for, by name."""

    presets: list[PresetBody]


class RemovedPreset(BaseModel):
    """Whether you had one of that name."""

    name: str
    removed: bool


@router.get("/egress/presets", summary="All egress presets that you may ask for")
async def find(service: Service, owner: Owner) -> PresetList:
    """By name; your own take the place of none of the installation's."""
    return PresetList(presets=[PresetBody.of(one) for one in service.egress.presets.list(owner)])


@router.get("/egress/presets/{name}", summary="One egress preset")
async def get(name: Name, service: Service, owner: Owner) -> PresetBody:
    """As it was written; ``GET /v1/sandboxes/{id}/egress`` has the rules that a sandbox got of it."""
    return _found(service, owner, name)


@router.put("/egress/presets/{name}", summary="Declare an egress preset of yours, in the place of the one before")
async def put(name: Name, policy: EgressPolicy, service: Service, owner: Owner, response: Response) -> PresetBody:
    """Sandboxes that have it keep the rules that it had when it was set."""
    fresh = await service.egress.presets.declare(owner, name, policy)
    response.status_code = 201 if fresh else 200
    return _found(service, owner, name)


@router.delete("/egress/presets/{name}", summary="Remove an egress preset of yours")
async def delete(name: Name, service: Service, owner: Owner) -> RemovedPreset:
    """Sandboxes that have it keep it. Repeating it is success."""
    return RemovedPreset(name=name, removed=await service.egress.presets.remove(owner, name))


def _found(service: Service, owner: str, name: str) -> PresetBody:
    found = next((one for one in service.egress.presets.list(owner) if one.name == name), None)
    if found is None:
        raise service.egress.presets.missing(owner, name)
    return PresetBody.of(found)
