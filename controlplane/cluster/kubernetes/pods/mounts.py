"""Data sets of pods, volumes that are read only, from claims, images and folders of nodes; and their scratch."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from controlplane.clock import Clock
from controlplane.cluster.kubernetes.api_server.client import KubernetesClient
from controlplane.cluster.kubernetes.api_server.refusals import Refused
from controlplane.cluster.kubernetes.marks import ANNOTATION_DATASETS
from controlplane.cluster.kubernetes.pods import image_volumes, scratch
from controlplane.cluster.protocol import Bound, DatasetAt
from controlplane.errors import Problem
from controlplane.model.dataset import DatasetSpec

# Access modes with which pods on many nodes read one claim.
READ_BY_MANY: Final = frozenset({"ReadOnlyMany", "ReadWriteMany"})
# A herd of creates asks once.
KNOWN_FOR_MS: Final = 2_000
MOST_KNOWN: Final = 1_024
_NAME: Final = "dataset-"
_VOLUME: Final = re.compile(rf"\b(?:{_NAME}|{scratch.VOLUME})\d+\b")
# A folder that a node does not have comes there by no repetition of the kubelet's.
_NO_FOLDER: Final = re.compile(r"hostPath type check failed")
MOST_WORDS_CHARS: Final = 400

Json = dict[str, Any]


def volumes(bound: Sequence[Bound], installation: str) -> list[Json]:
    """The volumes of a pod; pure."""
    datasets = [{"name": _name(number), **_source(one.dataset)} for number, one in _datasets(bound)]
    return [*datasets, *scratch.volumes(bound, installation)]


def volume_mounts(bound: Sequence[Bound]) -> list[Json]:
    """Where the target sees them; pure."""
    datasets: list[Json] = [
        # What else is mounted in a folder would stay writable under a runtime that shares the node's kernel.
        {"name": _name(number), "mountPath": one.path, "readOnly": True, "recursiveReadOnly": "IfPossible"}
        for number, one in _datasets(bound)
    ]
    return [*datasets, *scratch.volume_mounts(bound)]


def annotations(bound: Sequence[Bound]) -> dict[str, str]:
    """What a pod says of its data sets, for ``not_mounted``; pure."""
    told = ",".join(f"{_name(number)}={one.name}" for number, one in _datasets(bound))
    return {ANNOTATION_DATASETS: told} if told else {}


def not_mounted(pod: Mapping[str, Any], message: str) -> str:
    """What is told of a pod whose node cannot mount its volumes; empty: it has no data sets and no scratch; pure.

    Args:
        pod: the API's object, or the part of it that ``trimmed`` keeps.
        message: the kubelet's.
    """
    words = _words(pod)
    # Of a claim kubelets may name the volume behind it alone.
    found = [words[one] for one in _VOLUME.findall(message) if one in words] or list(words.values())
    if not found:
        return ""
    node = str((pod.get("spec") or {}).get("nodeName") or "")
    which = " or ".join(f"the {one}" for one in dict.fromkeys(found))
    return f"{which} cannot be mounted on node {node}: {message[:MOST_WORDS_CHARS]}"


def image_unavailable(pod: Mapping[str, Any], image: str, message: str) -> str:
    """Why a container waits, if that is a data set that is an image; empty: it waits for something else; pure.

    Args:
        pod: the API's object, or the part of it that ``trimmed`` keeps.
        image: the container's own.
        message: the kubelet's about the container.
    """
    return image_volumes.unavailable(pod, image, message, _words(pod))


def is_hopeless(message: str) -> bool:
    """Whether the kubelet need not try again, by what it has said; pure."""
    return _NO_FOLDER.search(message) is not None


def paths(pod: Mapping[str, Any]) -> list[str]:
    """Where a pod's containers have data sets and scratch; pure."""
    return sorted(mount["mountPath"] for mount in _mounted(pod))


def kept(pod: Mapping[str, Any]) -> Json:
    """The part of a pod's spec that is read here of one that is there; empty, as of most pods, without mounts."""
    mounted = [{"name": one["name"], "mountPath": one["mountPath"]} for one in _mounted(pod)]
    return {"containers": [{"volumeMounts": mounted}], "volumes": image_volumes.kept(pod)} if mounted else {}


def check_kept(bound: Sequence[Bound], made: Json) -> None:
    """Refuses a pod that was made without one of its data sets; pure.

    API servers without image volumes leave them out, and say nothing.

    Raises:
        Problem: dataset_unavailable.
    """
    there = {one["name"] for one in made["spec"].get("volumes", ()) if len(one) > 1}
    for number, one in _datasets(bound):
        if _name(number) not in there:
            why = f"the API server leaves {one.dataset.source} out: it has no image volumes (feature gate ImageVolume)"
            raise Problem("dataset_unavailable", f"the data set {one.name} cannot be had: {why}", dataset=one.name)


def _mounted(pod: Mapping[str, Any]) -> list[Json]:
    containers = (pod.get("spec") or {}).get("containers") or ()
    mounted = [mount for one in containers for mount in one.get("volumeMounts") or ()]
    return [mount for mount in mounted if _VOLUME.fullmatch(mount["name"])]


def _words(pod: Mapping[str, Any]) -> dict[str, str]:
    """What a pod's volumes are, for people: data sets by their names, scratch by where it is."""
    annotated = str((pod["metadata"].get("annotations") or {}).get(ANNOTATION_DATASETS) or "")
    names = dict(one.partition("=")[::2] for one in annotated.split(",")) if annotated else {}
    shared = [one for one in _mounted(pod) if one["name"].startswith(scratch.VOLUME)]
    return {
        **{volume: f"data set {name}" for volume, name in names.items()},
        **{one["name"]: f"scratch at {one['mountPath']}" for one in shared},
    }


def _datasets(bound: Sequence[Bound]) -> list[tuple[int, DatasetAt]]:
    return [(number, one) for number, one in enumerate(bound) if isinstance(one, DatasetAt)]


def _name(number: int) -> str:
    return f"{_NAME}{number}"


def _source(dataset: DatasetSpec) -> Json:
    if dataset.claim:
        return {"persistentVolumeClaim": {"claimName": dataset.claim, "readOnly": True}}
    if dataset.image:
        return {"image": {"reference": dataset.image, "pullPolicy": "IfNotPresent"}}
    return {"hostPath": {"path": dataset.folder, "type": "Directory"}}


@dataclass(frozen=True, slots=True)
class MountOptions:
    """What may be mounted here besides claims.

    Attributes:
        folders: beginnings of folders of nodes that data sets may name.
        images: whether nodes mount images as volumes.
        scratch_class: the StorageClass of scratch; empty: there is none.
    """

    folders: Sequence[str] = ()
    images: bool = False
    scratch_class: str = ""


class PodMounts:
    """See ``Mounts``.

    Args:
        client: of the API server.
        namespace: the sandboxes'; claims are looked for there.
        options: what may be mounted.
        clock: for how long an answer holds.
        scratches: the claims of scratch.
    """

    def __init__(
        self,
        client: KubernetesClient,
        namespace: str,
        options: MountOptions,
        clock: Clock,
        scratches: scratch.Scratches,
    ) -> None:
        self.scratches = scratches
        self._client = client
        self._namespace = namespace
        self._folders = options.folders
        self._images = options.images
        self._clock = clock
        self._known: dict[str, tuple[int, str]] = {}

    async def check_scratch(self, key: str, size_bytes: int) -> None:
        """See ``Mounts.check_scratch``. Cost: one call to the API server."""
        await self.scratches.check(key, size_bytes)

    def check_dataset(self, dataset: DatasetSpec) -> None:
        """See ``Mounts.check_dataset``."""
        if dataset.image and not self._images:
            detail = (
                f"{dataset.source} cannot be mounted: nodes have no image volumes (datasets.imageVolumes of the chart)"
            )
            raise Problem("unsupported", detail, option="mounts")
        if dataset.folder and not any(_within(dataset.folder, one) for one in self._folders):
            allowed = ", ".join(self._folders) or "none"
            detail = (
                f"{dataset.source} may not be mounted: allowed are those in {allowed} (datasets.folders of the chart)"
            )
            raise Problem("permission_denied", detail, option="mounts")

    async def trouble(self, dataset: DatasetSpec) -> str:
        """See ``Mounts.trouble``: of a claim. Whether a node has a folder or an image, only its kubelet knows."""
        if not dataset.claim:
            return ""
        now_ms = self._clock.now_ms()
        until_ms, told = self._known.get(dataset.claim, (0, ""))
        if now_ms < until_ms:
            return told
        told = await self._of_claim(dataset.claim)
        if len(self._known) >= MOST_KNOWN:
            self._known.clear()
        self._known[dataset.claim] = (now_ms + KNOWN_FOR_MS, told)
        return told

    async def _of_claim(self, name: str) -> str:
        try:
            claim = await self._client.get(f"/api/v1/namespaces/{self._namespace}/persistentvolumeclaims/{name}")
        except Refused as refused:
            if refused.refusal.status != HTTPStatus.NOT_FOUND:
                raise
            return f"there is no claim {name} in the namespace {self._namespace}"
        return claim_trouble(name, claim)


def claim_trouble(name: str, claim: Mapping[str, Any]) -> str:
    """Why many pods cannot read a claim; empty: they can. Pure."""
    if claim["metadata"].get("deletionTimestamp"):
        return f"the claim {name} is being removed"
    modes = claim.get("spec", {}).get("accessModes") or []
    if not READ_BY_MANY & {*modes}:
        return (
            f"the claim {name} is for one node ({', '.join(modes)}): it has to be {' or '.join(sorted(READ_BY_MANY))}"
        )
    phase = claim.get("status", {}).get("phase", "")
    # One that waits for its first consumer is bound when a pod asks for it.
    return f"the claim {name} is {phase}: its volume is gone" if phase == "Lost" else ""


def _within(folder: str, beginning: str) -> bool:
    return folder == beginning or folder.startswith(f"{beginning}/")
