"""Reduces pod objects to the fields that are needed. Pure."""

from typing import Any, Final

from controlplane.cluster.kubernetes.marks import (
    ANNOTATION_ADDRESS,
    ANNOTATION_DATASETS,
    ANNOTATION_START_BY,
    ANNOTATION_UNDONE,
)
from controlplane.cluster.kubernetes.pods import mounts

Json = dict[str, Any]

_JUDGED: Final = ("PodScheduled", "DisruptionTarget")
_READ: Final = (ANNOTATION_START_BY, ANNOTATION_ADDRESS, ANNOTATION_UNDONE, ANNOTATION_DATASETS)


def trimmed(pod: Json, *metadata: str) -> Json:
    """A copy of a pod with the fields that ``pods`` and ``deaths`` need: a tenth of its size.

    Args:
        pod: as the API server has it.
        metadata: names of more fields of its metadata that are kept.
    """
    about, status = pod["metadata"], pod.get("status") or {}
    annotations = about.get("annotations") or {}
    return {
        "metadata": {
            **{name: about[name] for name in metadata if name in about},
            "name": about["name"],
            "deletionTimestamp": about.get("deletionTimestamp"),
            "annotations": {name: annotations[name] for name in _READ if annotations.get(name)},
        },
        "spec": {"nodeName": (pod.get("spec") or {}).get("nodeName"), **mounts.kept(pod)},
        "status": {
            **{key: status[key] for key in ("phase", "reason", "message", "podIP") if status.get(key)},
            "conditions": [one for one in status.get("conditions") or () if one.get("type") in _JUDGED],
            "containerStatuses": [
                {key: one.get(key) for key in ("name", "image", "state")}
                for one in status.get("containerStatuses") or ()
            ],
        },
    }
