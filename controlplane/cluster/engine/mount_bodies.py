"""The mounts of a target and the volumes of scratch, as the engine's API takes them. Pure."""

from collections.abc import Mapping, Sequence
from typing import Final

from controlplane.cluster.protocol import Bound, DatasetAt, ScratchAt

_BLOCK_BYTES: Final = 4096

Body = dict[str, object]


def bodies(bound: Sequence[Bound], installation: str) -> list[Body]:
    """The mounts of a target, as the engine's API takes them."""
    return [_dataset(one) if isinstance(one, DatasetAt) else _scratch(one, installation) for one in bound]


def _dataset(one: DatasetAt) -> Body:
    return {
        "Type": "bind",
        "Source": one.dataset.folder,
        "Target": one.path,
        "ReadOnly": True,
        # What is mounted in the folder is left out: engines leave such mounts writable.
        "BindOptions": {"Propagation": "rprivate", "NonRecursive": True},
    }


def _scratch(one: ScratchAt, installation: str) -> Body:
    # Without a copy of what the image has there.
    return {
        "Type": "volume",
        "Source": volume_name(installation, one.key),
        "Target": one.path,
        "VolumeOptions": {"NoCopy": True},
    }


def volume_name(installation: str, key: str) -> str:
    """The name of the volume of a scratch."""
    return f"rollbox-{installation}-{key}"


def volume(installation: str, one: ScratchAt, labels: Mapping[str, str]) -> Body:
    """The create body of the volume of a scratch."""
    blocks = -(-one.size_bytes // _BLOCK_BYTES)
    # In blocks: of `size` Podman thinks that it is a quota of its own file system.
    options = f"nr_blocks={blocks},nr_inodes={blocks},mode=1777,nosuid,nodev"
    return {
        "Name": volume_name(installation, one.key),
        "Driver": "local",
        "DriverOpts": {"type": "tmpfs", "device": "tmpfs", "o": options},
        "Labels": labels,
    }
