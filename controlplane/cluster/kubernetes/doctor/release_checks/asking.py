"""A pod with the first API key of a release, which asks the gateway for a sandbox and tells what it has found. Pure."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from controlplane.cluster.kubernetes.doctor import network_check
from controlplane.cluster.kubernetes.doctor.releases import Release

Json = Mapping[str, Any]
Place = tuple[str, int]
KEYS: Final = "/etc/rollbox/keys"


def manifest(
    release: Release, name: str, program: Sequence[str], gateway: Place, settings: Mapping[str, str]
) -> dict[str, Any]:
    """The pod.

    Args:
        release: the release; the sandbox is of its control plane's image.
        name: of the pod, the last part of which says what it checks.
        program: what it runs; its argument is the file for its findings.
        gateway: the Service of the gateway.
        settings: further ones of the program.
    """
    made = network_check.pod(
        name,
        release.namespace,
        {**network_check.PEER, "app.kubernetes.io/component": f"{name.rpartition('-')[2]}-check"},
        release.image,
        (*program, "/dev/termination-log"),
        imagePullSecrets=[{"name": one} for one in release.platform_pull_secrets],
        volumes=[{"name": "keys", "secret": {"secretName": release.api_keys}}],
    )
    (container,) = made["spec"]["containers"]
    url = "http://{}:{}".format(*gateway)
    environment = {"ROLLBOX_URL": url, "KEYS": f"{KEYS}/keys", "IMAGE": release.image, **settings}
    container["env"] += [{"name": one, "value": value} for one, value in environment.items()]
    container["volumeMounts"] = [{"name": "keys", "mountPath": KEYS, "readOnly": True}]
    return made


def said(status: Json) -> str:
    """What the pod has written, or why it ended."""
    ends = [one["state"].get("terminated") or {} for one in status.get("containerStatuses") or ()]
    return str(ends[0].get("message") or ends[0].get("reason") or "") if ends else ""


def told(status: Json) -> list[tuple[str, bool, str, str]]:
    """Name, whether it is in order, detail and what to do, of each finding.

    Raises:
        ValueError: it has told none.
    """
    try:
        found: list[dict[str, Any]] = json.loads(said(status))
        return [(one["name"], one["ok"], one["detail"], one["fix"]) for one in found]
    except (TypeError, KeyError) as error:
        raise ValueError("no findings") from error
