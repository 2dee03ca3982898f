"""Data sets and scratch of a cluster in memory."""

from dataclasses import dataclass, field

from controlplane.errors import Problem
from controlplane.model.dataset import DatasetSpec


@dataclass
class FakeMounts:
    """Mounts every folder, and a scratch of any size that was not asked for with another one."""

    troubles: dict[str, str] = field(default_factory=dict)  # by folder
    sizes: dict[str, int] = field(default_factory=dict)  # of scratch, by key

    async def check_scratch(self, key: str, size_bytes: int) -> None:
        if self.sizes.setdefault(key, size_bytes) != size_bytes:
            raise Problem("conflict", "the scratch is there with another size", option="mounts")

    def check_dataset(self, dataset: DatasetSpec) -> None:
        if not dataset.folder:
            raise Problem("unsupported", f"{dataset.source} cannot be mounted here", option="mounts")

    async def trouble(self, dataset: DatasetSpec) -> str:
        return self.troubles.get(dataset.folder, "")
