"""The routes of ``/v1/datasets``: every owner may read those that it may mount, operators may declare them."""

from typing import Annotated, Self

from fastapi import APIRouter, Path, Response
from pydantic import BaseModel

from controlplane.api.context import Operates, Operator, Owner, Service
from controlplane.lifecycle.datasets import Dataset
from controlplane.model.dataset import DatasetSpec
from controlplane.model.mounts import DATASET_NAME

Name = Annotated[str, Path(pattern=f"^{DATASET_NAME}$", max_length=63)]

router = APIRouter(tags=["datasets"])


class DatasetBody(BaseModel):
    """A data set.

    Attributes:
        source: where its files are, in words; empty for owners that are no operators.
        owners: who may mount it; empty: everybody.
        trouble: why it cannot be mounted now; empty: it can.
    """

    name: str
    source: str
    owners: list[str]
    trouble: str

    @classmethod
    def of(cls, dataset: Dataset, *, whole: bool, owner: str) -> Self:
        """From the lifecycle's view; where not ``whole``, without what is no business of this owner."""
        spec, trouble = dataset.spec, dataset.trouble
        if whole:
            return cls(name=dataset.name, source=spec.source, owners=spec.owners, trouble=trouble)
        return cls(name=dataset.name, source="", owners=[owner] if spec.owners else [], trouble=trouble)


class DatasetList(BaseModel):
    """All data sets that you may mount, by name; for operators all there are."""

    datasets: list[DatasetBody]


class RemovedDataset(BaseModel):
    """Whether there was one of that name."""

    name: str
    removed: bool


@router.get("/datasets", summary="All data sets that you may mount")
async def find(service: Service, owner: Owner, operates: Operates) -> DatasetList:
    """By name, with what keeps one from being mounted now; operators see all, with their sources and owners."""
    found = await service.datasets.list(owner, operator=operates)
    return DatasetList(datasets=[DatasetBody.of(one, whole=operates, owner=owner) for one in found])


@router.get("/datasets/{name}", summary="One data set")
async def get(name: Name, service: Service, owner: Owner, operates: Operates) -> DatasetBody:
    """Refused where it is not for you."""
    return DatasetBody.of(await service.datasets.get(owner, name, operator=operates), whole=operates, owner=owner)


@router.put("/datasets/{name}", summary="Declare a data set, in the place of the one before (operators)")
async def put(name: Name, spec: DatasetSpec, service: Service, owner: Operator, response: Response) -> DatasetBody:
    """Sandboxes that have mounted it keep what they have."""
    fresh = await service.datasets.put(name, spec)
    response.status_code = 201 if fresh else 200
    return DatasetBody.of(await service.datasets.get(owner, name, operator=True), whole=True, owner=owner)


@router.delete("/datasets/{name}", summary="Take a data set back; its files stay (operators)")
async def delete(name: Name, service: Service, _: Operator) -> RemovedDataset:
    """Sandboxes that have mounted it keep it. Repeating it is success."""
    return RemovedDataset(name=name, removed=await service.datasets.remove(name))
