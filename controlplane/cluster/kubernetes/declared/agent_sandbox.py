"""Reads pools from kubernetes-sigs/agent-sandbox objects: a ``SandboxWarmPool`` and its ``SandboxTemplate``. Pure.

Users of agent-sandbox keep their objects, and rollbox fills the pools with its own sandboxes. If a template has a field
that rollbox's pools cannot honour, the pool's ``trouble`` names it and nothing is started for it.
"""

from collections.abc import Mapping
from typing import Any, Final

from controlplane.capacity.amounts import GPU
from controlplane.cluster.documents import Document
from controlplane.cluster.kubernetes.api_server.client import Json
from controlplane.cluster.kubernetes.api_server.quantity import amount

GROUP: Final = "extensions.agents.x-k8s.io"
# Versions of agent-sandbox's API, the preferred one first; the fields that are read here are the same in each. Releases
# of agent-sandbox before 0.5 serve only the second. Later ones store the first, and need their conversion webhook to
# serve the second.
VERSIONS: Final = ("v1beta1", "v1alpha1")
TEMPLATES: Final = "sandboxtemplates"
WARM_POOLS: Final = "sandboxwarmpools"

# Fields of a template that are accepted: those that are used, and those that hold in any case (agent-sandbox's default
# network policy denies incoming connections as rollbox's does).
_SPEC: Final = {
    "podTemplate",
    "networkPolicyManagement",
    "envVarsInjectionPolicy",
    "volumeClaimTemplatesPolicy",
    "service",
}
_POD: Final = {
    "containers",
    "nodeSelector",
    "restartPolicy",
    "runtimeClassName",
    "automountServiceAccountToken",
    "terminationGracePeriodSeconds",
    "imagePullSecrets",
    "enableServiceLinks",
}
# Command, ports and probes are accepted and not used: images for agent-sandbox run a server, which the probes check;
# rollbox needs no server in the image, and runs the commands of execs.
_CONTAINER: Final = {
    "name",
    "image",
    "resources",
    "imagePullPolicy",
    "ports",
    "command",
    "args",
    "readinessProbe",
    "livenessProbe",
    "startupProbe",
    "terminationMessagePath",
    "terminationMessagePolicy",
}
# rollbox may not write a status into objects of agent-sandbox.
_STATUS: Final = {"why": "declared as a SandboxWarmPool: only the replica that plans can tell how it is; ask again"}
_RESOURCES: Final = {"cpu", "memory", "ephemeral-storage", GPU}


def serves(found: Json) -> bool:
    """Whether the API server's resource list of one API version has both kinds of object."""
    return {TEMPLATES, WARM_POOLS} <= {one.get("name") for one in found.get("resources") or ()}


def pool(warm: Json, templates: Mapping[str, Json]) -> Document:
    """One ``SandboxWarmPool`` as a document of kind ``pools``.

    Args:
        warm: the object.
        templates: all ``SandboxTemplate`` of its namespace, by name.
    """
    about, spec = warm.get("metadata") or {}, warm.get("spec") or {}
    reference = str((spec.get("sandboxTemplateRef") or {}).get("name") or "")
    template = templates.get(reference)
    version = f"{_version(warm)} {_version(template or {})}"
    name = str(about.get("name"))
    if template is None:
        return Document(name, version, {}, trouble=f"there is no SandboxTemplate {reference!r}")
    try:
        made = _template(template.get("spec") or {})
    except ValueError as error:
        return Document(name, version, {}, trouble=f"SandboxTemplate {reference!r}: {error}")
    replicas = spec.get("replicas", 1)
    body = {"template": made, "min_warm": replicas, "max_warm": replicas, "auto": False}
    return Document(name, version, body, _STATUS)


def _template(spec: Mapping[str, Any]) -> dict[str, Any]:
    _only(spec, _SPEC, "spec")
    of_pod = (spec.get("podTemplate") or {}).get("spec") or {}
    _only(of_pod, _POD, "podTemplate.spec")
    containers = of_pod.get("containers") or []
    if len(containers) != 1:
        raise ValueError(f"podTemplate.spec.containers has {len(containers)} of them, and a sandbox has one")
    (container,) = containers
    _only(container, _CONTAINER, f"the container {container.get('name')!r}")
    made = {"image": container.get("image"), **_amounts(container.get("resources") or {})}
    if of_pod.get("nodeSelector"):
        made["node_selector"] = dict(of_pod["nodeSelector"])
    return made


def _amounts(resources: Mapping[str, Any]) -> dict[str, Any]:
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    for amounts in (requests, limits):
        _only(amounts, _RESOURCES, "resources")
    made: dict[str, Any] = {}
    for resource, field, scale in (("cpu", "cpu_millicores", 1000), ("memory", "memory_bytes", 1)):
        # As in Kubernetes, a limit without a request is the request too.
        limit = limits.get(resource) or requests.get(resource)
        if limit is not None:
            request = requests.get(resource) or limit
            made[field] = {"request": amount(request, scale), "limit": amount(limit, scale)}
    if disk := limits.get("ephemeral-storage"):
        made["disk_bytes"] = amount(disk)
    if gpu := limits.get(GPU):
        made["gpu"] = amount(gpu)
    return made


def _only(given: Mapping[str, Any], known: set[str], where: str) -> None:
    for name, value in given.items():
        if value not in (None, [], {}, "") and name not in known:
            raise ValueError(f"{where}.{name} cannot be honoured by a pool here")


def _version(thing: Json) -> str:
    about = thing.get("metadata") or {}
    return f"{about.get('uid', '')}.{about.get('generation', 0)}"
