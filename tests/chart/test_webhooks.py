"""Webhooks: none by default; each has its key from a Secret of its own, and the control plane reads the rest."""

import json
from typing import Any

import pytest

from controlplane.webhooks import read_endpoints
from tests.support.helm import ChartError, Manifest, named, render

FIRST = "controlplane.events.webhooks[0]"
MOUNT = {"name": "webhooks", "mountPath": "/etc/rollbox/webhooks", "readOnly": True}


def pod(manifests: list[Manifest]) -> tuple[dict[str, Any], list[Any], list[Any]]:
    """The control plane's environment, mounts and volumes."""
    spec = named(manifests, "Deployment", "rollbox-controlplane")["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    return {one["name"]: one.get("value") for one in container["env"]}, container["volumeMounts"], spec["volumes"]


def test_without_values_there_are_none() -> None:
    for values in ((), ("controlplane.events=null",)):
        env, mounts, volumes = pod(render(*values))
        assert "ROLLBOX_CONTROLPLANE_WEBHOOKS" not in env
        assert not [one for one in (*mounts, *volumes) if one["name"] == "webhooks"]


def test_the_control_plane_reads_what_the_chart_says() -> None:
    first_one = {"name": "ops", "url": "https://hooks.example.com/in", "secretName": "ops-key"}
    second = {"name": "train", "url": "http://receiver.team.svc/in", "secretName": "train-key", "batch": 100}
    second |= {"owners": ["alice", "bob"], "types": ["end"], "giveUpSeconds": 60, "allowPrivate": True}
    told = f"controlplane.events.webhooks={json.dumps([first_one, second])}"
    env, mounts, volumes = pod(render(as_json=[told]))
    first, other = read_endpoints(str(env["ROLLBOX_CONTROLPLANE_WEBHOOKS"]))
    assert (first.name, first.secret_file, first.batch) == ("ops", "/etc/rollbox/webhooks/ops", 1)
    assert (first.owners, first.types, first.give_up_seconds, first.allow_private) == ([], [], 3600, False)
    assert (other.owners, other.types, other.batch, other.allow_private) == (["alice", "bob"], ["end"], 100, True)
    assert other.give_up_seconds == 60
    assert MOUNT in mounts
    (volume,) = [one for one in volumes if one["name"] == "webhooks"]
    assert [one["secret"] for one in volume["projected"]["sources"]] == [
        {"name": f"{name}-key", "items": [{"key": "secret", "path": name}]} for name in ("ops", "train")
    ]
    assert "ops-key" not in json.dumps(env)


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("batch=101", "'/controlplane/events/webhooks/0/batch': maximum"),
        ("giveUpSeconds=0", "'/controlplane/events/webhooks/0/giveUpSeconds': minimum"),
        ("url=ftp://x", "'/controlplane/events/webhooks/0/url'"),
        ("name=Ops", "'/controlplane/events/webhooks/0/name'"),
        ("secret=x", "additional properties 'secret' not allowed"),
    ],
)
def test_what_is_wrong_is_refused(setting: str, complaint: str) -> None:
    whole = (f"{FIRST}.name=ops", f"{FIRST}.url=https://h.example.com", f"{FIRST}.secretName=key")
    with pytest.raises(ChartError) as caught:
        render(*whole, f"{FIRST}.{setting}")
    assert complaint in str(caught.value)
