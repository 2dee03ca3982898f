"""What a container may do, as cells of a table. Pure but for the Dockerfiles, which say what is in an image.

A pod may have several forms, by values of the chart. A cell has what any of them has.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

Json = dict[str, Any]
Cells = tuple[str, ...]
HEAD: Final = ("container", "user", "files", "powers", "of the node", "Secrets", "API server", "shell", "why")
NONE: Final = "none"
IMAGES: Final = Path(__file__).parents[3] / "images"
# Public images that have no shell, beside those of one static program.
WITHOUT_SHELL: Final = (
    "scratch",
    "coredns/coredns",
    "gcr.io/distroless/static-debian12",
    "registry.k8s.io/kube-scheduler",
)
# All that a manifest of ours says of these. A new field is of no cell until it is put into one.
OF_POD: Final = {"runAsNonRoot", "runAsUser", "runAsGroup", "fsGroup", "fsGroupChangePolicy", "seccompProfile"}
OF_CONTAINER: Final = {
    "runAsUser",
    "runAsGroup",
    "privileged",
    "allowPrivilegeEscalation",
    "readOnlyRootFilesystem",
    "capabilities",
    "appArmorProfile",
}
VOLUMES: Final = {"configMap", "emptyDir", "hostPath", "image", "persistentVolumeClaim", "projected", "secret"}
HOST: Final = {"hostNetwork": "network", "hostPID": "PIDs"}
ALL: Final = "ALL"


def containers(pod: Json) -> list[Json]:
    """Those of a pod, with those that run first."""
    return [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]


def unknown(pod: Json) -> list[str]:
    """Fields of a pod that give or take power, and are in no cell."""
    spec = pod["spec"]
    found = [f"securityContext.{one}" for one in spec.get("securityContext", {}).keys() - OF_POD]
    found += [one for one in spec if one.startswith("host") and one not in {*HOST, "hostname"}]
    for volume in spec.get("volumes", ()):
        found += [f"volumes.{one}" for one in volume.keys() - VOLUMES - {"name"}]
    for one in containers(pod):
        found += [f"{one['name']}.{key}" for key in one.get("securityContext", {}).keys() - OF_CONTAINER]
        found += [f"{one['name']}.hostPort" for port in one.get("ports", ()) if "hostPort" in port]
    return found


def row(name: str, forms: Iterable[tuple[Json, Json]]) -> Cells:
    """The row of a container without its last cell.

    Args:
        name: of pod and container.
        forms: the pod and its container, in each form.
    """
    seen = list(forms)
    made = (_user, _files, _powers, _of_the_node, _secrets, _account, _shell)
    return (name, *(_joined(one for form in seen for one in cell(*form)) for cell in made))


def _joined(found: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(found)) or NONE


def _both(pod: Json, container: Json) -> Json:
    return {**pod["spec"].get("securityContext", {}), **container.get("securityContext", {})}


def _user(pod: Json, container: Json) -> Iterator[str]:
    said = _both(pod, container)
    user = said.get("runAsUser")
    yield "the image's" if user is None else "root" if user == 0 else str(user)


def _files(pod: Json, container: Json) -> Iterator[str]:
    yield "read only" if _both(pod, container).get("readOnlyRootFilesystem") else "writable"
    kinds = {one["name"]: one for one in pod["spec"].get("volumes", ())}
    for mount in container.get("volumeMounts", ()):
        if not mount.get("readOnly") and "hostPath" not in kinds.get(mount["name"], {}):
            yield f"writes `{mount['mountPath']}`"


def _powers(pod: Json, container: Json) -> Iterator[str]:
    said = _both(pod, container)
    capabilities = said.get("capabilities", {})
    if ALL not in capabilities.get("drop", ()):
        yield "the runtime's capabilities"
        yield from (f"not {one}" for one in capabilities.get("drop", ()))
    yield from capabilities.get("add", ())
    if said.get("privileged"):
        yield "privileged"
    if said.get("allowPrivilegeEscalation") is not False:
        yield "escalation"
    if said.get("seccompProfile") != {"type": "RuntimeDefault"}:
        yield "no seccomp"
    if "appArmorProfile" in said:
        yield f"AppArmor {said['appArmorProfile']['type']}"


def _of_the_node(pod: Json, container: Json) -> Iterator[str]:
    yield from (word for field, word in HOST.items() if pod["spec"].get(field))
    paths = {one["name"]: one["hostPath"]["path"] for one in pod["spec"].get("volumes", ()) if "hostPath" in one}
    for mount in container.get("volumeMounts", ()):
        if mount["name"] in paths:
            yield f"`{paths[mount['name']]}`{'' if mount.get('readOnly') else ' to write'}"


def _secrets(pod: Json, container: Json) -> Iterator[str]:
    mounted = {one["name"] for one in container.get("volumeMounts", ())}
    for volume in pod["spec"].get("volumes", ()):
        sources = [one["secret"] for one in volume.get("projected", {}).get("sources", ()) if "secret" in one]
        sources += [volume["secret"]] if "secret" in volume else []
        for one in sources if volume["name"] in mounted else ():
            yield from _entries(one.get("secretName") or one["name"], [item["key"] for item in one.get("items", ())])
    for one in container.get("env", ()):
        if reference := one.get("valueFrom", {}).get("secretKeyRef"):
            yield from _entries(reference["name"], [reference["key"]])


def _entries(name: str, keys: list[str]) -> Iterator[str]:
    plain = name.removeprefix("rollbox-")
    yield from (f"`{plain}/{key}`" for key in keys) if keys else (f"`{plain}`",)


def _account(pod: Json, _container: Json) -> Iterator[str]:
    if pod["spec"].get("automountServiceAccountToken") is not False:
        yield f"as `{pod['spec'].get('serviceAccountName', 'default').removeprefix('rollbox-')}`"


def _shell(_pod: Json, container: Json) -> Iterator[str]:
    name = re.sub(r"[:@].*", "", container["image"].rpartition("/")[2])
    file = IMAGES / name / "Dockerfile"
    if not file.exists():
        yield "the image's"
        return
    (base,) = re.findall(r"^ARG BASE=([^\s:]+)", file.read_text(), re.MULTILINE)
    yield "no" if base in WITHOUT_SHELL else "yes"
