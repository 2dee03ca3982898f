"""``Mounts``: what a backend mounts into sandboxes besides their image."""

from dataclasses import dataclass
from typing import Protocol

from controlplane.model.dataset import DatasetSpec


@dataclass(frozen=True, slots=True)
class DatasetAt:
    """A data set at a path of a sandbox.

    Attributes:
        path: where it is seen.
        name: of the data set.
        dataset: where its files are.
    """

    path: str
    name: str
    dataset: DatasetSpec


@dataclass(frozen=True, slots=True)
class ScratchAt:
    """A scratch at a path of a sandbox.

    Attributes:
        path: where it is seen.
        key: the same for all sandboxes that share it (``scratch_key``).
        size_bytes: the most that it holds.
    """

    path: str
    key: str
    size_bytes: int


Bound = DatasetAt | ScratchAt


class Mounts(Protocol):
    """Mounts data sets and scratch."""

    async def check_scratch(self, key: str, size_bytes: int) -> None:
        """Refuses a scratch that this backend cannot give.

        Args:
            key: as in ``ScratchAt``.
            size_bytes: the most that it is to hold.

        Raises:
            Problem: unsupported, with what an operator would have to do; conflict: it is there with another size;
                dataset_unavailable: it is being removed.
        """
        ...

    def check_dataset(self, dataset: DatasetSpec) -> None:
        """Refuses a data set whose source this backend cannot mount, or may not. Cost: no call.

        Raises:
            Problem: unsupported, permission_denied.
        """
        ...

    async def trouble(self, dataset: DatasetSpec) -> str:
        """Why a data set cannot be mounted now, in words; empty: it can.

        Raises:
            Problem: the cluster does not answer.
        """
        ...
