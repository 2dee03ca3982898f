"""What a pod says of the devices of its sandbox. Pure.

A device is opened by commands, which are processes of the sidecar's container, and its files and variables are the
user's container's: so both containers name each claim, and a claim gives the same device to both.
"""

from typing import Any

from controlplane.cluster.kubernetes.nodes.devices import DeviceClaims
from controlplane.model import SandboxSpec

Json = dict[str, Any]


def of_pod(given: DeviceClaims | None, spec: SandboxSpec) -> Json:
    """The claims of a pod: one for each device, each made of the installation's template for this pod alone."""
    template = "" if given is None else given.template
    claims = [{**name, "resourceClaimTemplateName": template} for name in _names(given, spec)]
    return {"resourceClaims": claims} if claims else {}


def of_container(given: DeviceClaims | None, spec: SandboxSpec) -> Json:
    """What a container adds to its requests and limits."""
    names = _names(given, spec)
    return {"claims": names} if names else {}


def runtime_class(given: DeviceClaims | None, spec: SandboxSpec) -> str:
    """That of a sandbox with devices; empty: it has none, or no other than others."""
    return given.runtime_class if given is not None and spec.gpu else ""


def _names(given: DeviceClaims | None, spec: SandboxSpec) -> list[Json]:
    return [] if given is None else [{"name": f"gpu-{number}"} for number in range(spec.gpu)]
