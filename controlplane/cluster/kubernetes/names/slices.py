"""Which endpoints are in which EndpointSlice, and which slices have to be written for what has changed. Pure."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from controlplane.cluster.kubernetes.marks import DOMAIN, LABEL_INSTALLATION, SIDECAR_PORT

Json = dict[str, Any]
LABEL_SERVICE: Final = "kubernetes.io/service-name"
LABEL_MANAGED: Final = "endpointslice.kubernetes.io/managed-by"
# Of headless Services: proxies of nodes need not hear of them.
LABEL_HEADLESS: Final = "service.kubernetes.io/headless"
OURS: Final = f"controlplane.{DOMAIN}"
# Kubernetes' own writers: what they have left of a Service that had a selector, nobody would keep up to date.
THEIRS: Final = frozenset({"endpointslice-controller.k8s.io", "endpointslicemirroring-controller.k8s.io"})
# As in Kubernetes' own: a change writes the whole slice, about 150 bytes for each endpoint.
MOST: Final = 100


@dataclass(slots=True)
class Slice:
    """One EndpointSlice.

    Attributes:
        name: of the object.
        service: of whose endpoints it has some.
        family: ``IPv4`` or ``IPv6``.
        endpoints: addresses by name of the sandbox.
        version: of the object; empty: it is to be created.
    """

    name: str
    service: str
    family: str
    endpoints: dict[str, str] = field(default_factory=dict)
    version: str = ""


class Slices:
    """The slices of an installation, as they are or as they are to be written.

    Attributes:
        changed: names of those that are to be written.

    Args:
        installation: the value of their label.
        service_of: which Service has the name of a sandbox; empty: none.
        fresh: makes the name of a new slice of a Service.
    """

    def __init__(
        self, installation: str, service_of: Callable[[str], str], fresh: Callable[[str], str], found: Iterable[Slice]
    ) -> None:
        self.changed: set[str] = set()
        self._installation = installation
        self._service_of = service_of
        self._fresh = fresh
        self._slices: dict[str, Slice] = {}
        self._holders: dict[str, Slice] = {}
        self._of: defaultdict[tuple[str, str], list[Slice]] = defaultdict(list)
        for one in found:
            self._add(one)

    def __getitem__(self, name: str) -> Slice:
        return self._slices[name]

    @property
    def held(self) -> Sequence[str]:
        """The sandboxes that have a name."""
        return list(self._holders)

    def put(self, sandbox_id: str, address: str) -> None:
        """Gives a sandbox's name an address; empty: takes the name away."""
        holder, family = self._holders.get(sandbox_id), "IPv6" if ":" in address else "IPv4"
        if holder is not None and address and holder.family == family:
            if holder.endpoints[sandbox_id] != address:
                holder.endpoints[sandbox_id] = address
                self.changed.add(holder.name)
            return
        if holder is not None:
            del self._holders[sandbox_id], holder.endpoints[sandbox_id]
            self.changed.add(holder.name)
        service = self._service_of(sandbox_id)
        if address and service:
            room = self._with_room(service, family)
            room.endpoints[sandbox_id] = address
            self._holders[sandbox_id] = room
            self.changed.add(room.name)

    def manifest(self, one: Slice, owner: Mapping[str, str]) -> Json:
        """The object, whose Service it goes with."""
        return {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": one.name,
                "labels": {
                    LABEL_SERVICE: one.service,
                    LABEL_MANAGED: OURS,
                    LABEL_HEADLESS: "",
                    LABEL_INSTALLATION: self._installation,
                },
                "ownerReferences": [{"apiVersion": "v1", "kind": "Service", "name": one.service, "uid": owner["uid"]}],
                **({"resourceVersion": one.version} if one.version else {}),
            },
            "addressType": one.family,
            "endpoints": endpoints(one),
            "ports": [{"name": "agent", "port": SIDECAR_PORT, "protocol": "TCP"}],
        }

    def _add(self, one: Slice) -> None:
        self._slices[one.name] = one
        self._of[one.service, one.family].append(one)
        for name in [*one.endpoints]:
            if name in self._holders:  # twice: two writers at once
                del one.endpoints[name]
                self.changed.add(one.name)
            else:
                self._holders[name] = one

    def _with_room(self, service: str, family: str) -> Slice:
        """The fullest that has room: so a herd changes one slice of each Service, and what empties stays empty."""
        room = [one for one in self._of[service, family] if len(one.endpoints) < MOST]
        if room:
            # One that is written anyway costs nothing more.
            return max(room, key=lambda one: (one.name in self.changed, len(one.endpoints)))
        made = Slice(self._fresh(service), service, family)
        self._add(made)
        return made


def endpoints(one: Slice) -> list[Json]:
    """The endpoints of a slice, as the object has them."""
    return [
        {"addresses": [address], "hostname": name, "conditions": {"ready": True}}
        for name, address in one.endpoints.items()
    ]


def read(thing: Json) -> Slice:
    """A slice of ours, from the object."""
    about = thing["metadata"]
    held = {
        str(one.get("hostname") or ""): str(one["addresses"][0])
        for one in thing.get("endpoints") or ()
        if one.get("addresses")
    }
    held.pop("", None)
    service = str((about.get("labels") or {}).get(LABEL_SERVICE) or "")
    version = str(about.get("resourceVersion") or "")
    return Slice(str(about["name"]), service, str(thing["addressType"]), held, version)


def managed_by(thing: Json) -> str:
    """Who writes a slice."""
    return str((thing["metadata"].get("labels") or {}).get(LABEL_MANAGED) or "")
