"""Reads the settings of an installed release of the chart from the Deployment of its control plane. Pure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from controlplane.cluster.kubernetes.nodes.devices import DeviceClaims
from controlplane.settings import PREFIX

SELECTOR: Final = "app.kubernetes.io/name=rollbox,app.kubernetes.io/component=controlplane"
LABEL_RELEASE: Final = "app.kubernetes.io/instance"

# The name of a volume.
API_KEYS: Final = "api-keys"


@dataclass(frozen=True, slots=True)
class Release:
    """One release.

    Attributes:
        name: the release's name.
        namespace: the namespace of the platform's pods.
        sandboxes: the namespace of the sandboxes.
        ready: the Service for readiness pushes: its namespace, name and port.
        image: the control plane's image.
        pull_secrets: the sandboxes' image pull secrets, in their namespace.
        platform_pull_secrets: the platform's image pull secrets, in its namespace.
        required_kernel: text that the kernel's name in a sandbox must contain; ``any``: it is not checked.
        api_keys: the Secret of the API keys, in the platform's namespace.
        owner_pull_secrets: those that one owner's sandboxes alone have, in the same namespace, by owner.
        devices: how sandboxes get devices; None: they get none.
    """

    name: str
    namespace: str
    sandboxes: str
    ready: tuple[str, str, int]
    runtime_class: str
    image: str
    node_selector: Mapping[str, str]
    tolerations: Sequence[Mapping[str, object]]
    pull_secrets: Sequence[str]
    platform_pull_secrets: Sequence[str]
    required_kernel: str
    api_keys: str
    owner_pull_secrets: Mapping[str, Sequence[str]]
    devices: DeviceClaims | None = None

    @classmethod
    def of(cls, deployment: Mapping[str, Any]) -> Self:
        """From the Deployment that the chart has created."""
        about, spec = deployment["metadata"], deployment["spec"]["template"]["spec"]
        # By name, since a service mesh may have added a container.
        container = next(one for one in spec["containers"] if one["name"] == "controlplane")
        set_to = {one["name"].removeprefix(PREFIX): str(one.get("value") or "") for one in container["env"]}
        host, _, port = set_to["READY_URL"].rpartition("/")[2].partition(":")
        service, namespace = host.split(".")[:2]
        return cls(
            name=set_to["INSTALLATION"],
            namespace=str(about["namespace"]),
            sandboxes=set_to["NAMESPACE"],
            ready=(namespace, service, int(port)),
            runtime_class=set_to["RUNTIME_CLASS"],
            image=str(container["image"]),
            node_selector=json.loads(set_to.get("NODE_SELECTOR") or "{}"),
            tolerations=json.loads(set_to.get("TOLERATIONS") or "[]"),
            pull_secrets=[one for one in set_to.get("IMAGE_PULL_SECRETS", "").split(",") if one],
            platform_pull_secrets=[str(one["name"]) for one in spec.get("imagePullSecrets") or ()],
            required_kernel=set_to.get("REQUIRED_KERNEL") or "gVisor",
            api_keys=next((_secret(one) for one in spec.get("volumes") or () if one["name"] == API_KEYS), ""),
            owner_pull_secrets=json.loads(set_to.get("OWNER_PULL_SECRETS") or "{}"),
            devices=_devices(set_to),
        )


def _devices(set_to: Mapping[str, str]) -> DeviceClaims | None:
    named = (set_to.get(f"GPU_{name}", "") for name in ("DEVICE_CLASS", "CLAIM_TEMPLATE", "RUNTIME_CLASS"))
    return DeviceClaims(*named) if set_to.get("GPU_DEVICE_CLASS") else None


def _secret(volume: Mapping[str, Any]) -> str:
    return str((volume.get("secret") or {}).get("secretName") or "")
