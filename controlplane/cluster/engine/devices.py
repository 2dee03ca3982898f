"""Which sandbox holds which device of this machine; each has one holder."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from controlplane.cluster.engine.cdi import Device
from controlplane.errors import Problem


class Devices:
    """The devices of one kind.

    Args:
        kind: as CDI names it; empty: none are given to sandboxes.
        devices: all of them.

    Attributes:
        kind: see above.
    """

    def __init__(self, kind: str = "", devices: Sequence[Device] = ()) -> None:
        self.kind = kind
        self._devices = {device.name: device for device in devices}
        self._held: dict[str, tuple[str, ...]] = {}
        self._adopted = False

    def __len__(self) -> int:
        return len(self._devices)

    def take(self, sandbox_id: str, count: int) -> tuple[Device, ...]:
        """Gives a sandbox so many devices, the same ones if it has some already.

        Raises:
            Problem: capacity_unavailable, when fewer are free.
        """
        if sandbox_id not in self._held:
            taken = {name for names in self._held.values() for name in names}
            free = [name for name, device in self._devices.items() if name not in taken and _is_there(device)]
            if len(free) < count:
                detail = f"gpu {count}: {len(free)} of the {len(self)} devices of the kind {self.kind} are free"
                raise Problem("capacity_unavailable", detail)
            if count:
                self._held[sandbox_id] = tuple(free[:count])
        return tuple(self._devices[name] for name in self._held.get(sandbox_id, ()) if name in self._devices)

    def adopt(self, held: Mapping[str, Sequence[str]]) -> None:
        """Notes which devices the sandboxes hold that an earlier control plane has started; only the first call counts.

        A later look at the engine may be older than a release.
        """
        if not self._adopted:
            self._adopted = True
            self._held |= {sandbox_id: tuple(names) for sandbox_id, names in held.items()}

    def release(self, sandbox_id: str) -> None:
        """Takes back what a sandbox holds, once none of its containers is left."""
        self._held.pop(sandbox_id, None)


def _is_there(device: Device) -> bool:
    return all(Path(on_machine).exists() for on_machine, _, _ in device.nodes)
