"""The tables of docs/operating/hardening.md are what the manifests say, row by row."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from tests.support.hardening import containers, facts, page, rendered, rights, security_levels, ways
from tests.support.helm import CHART, ROOT, ChartError, named, pods, render, run

Json = dict[str, Any]
Rows = Callable[[], list[tuple[str, ...]]]
TABLES: list[tuple[tuple[str, ...], Rows]] = [
    (containers.HEAD, facts.of_containers),
    (ways.HEAD, facts.of_ways),
    (rights.HEAD, facts.of_rights),
    (facts.LEVELS_HEAD, facts.of_levels),
]
# Switches that give no container anything: they take rights away, or are of objects that other programs read.
GIVES_NOTHING = {
    "scaling.dryRun",
    "networkPolicies.acceptUnenforced",
    "capacity.nodesCanBeAdded",
    "metrics.podMonitor.enabled",
    "metrics.dashboards.enabled",
    "metrics.rules.enabled",
    "bridges.e2b.privatePorts",
    "platform.userNamespaces",
}


@pytest.mark.parametrize(("head", "rows"), TABLES, ids=[head[0] for head, _ in TABLES])
def test_a_table_has_a_row_for_each_with_what_the_manifests_say_and_why(head: tuple[str, ...], rows: Rows) -> None:
    told = page.read(page.PAGE.read_text(), head)
    assert [row[:-1] for row in told] == rows(), "python -m tests.support.hardening writes the rows anew"
    assert [row[0] for row in told if not row[-1]] == [], "rows that do not say why"


def test_no_pod_has_a_power_that_is_in_no_cell() -> None:
    assert [(name, found) for name, _, pod in rendered.everything() if (found := containers.unknown(pod))] == []


def test_all_that_can_be_switched_on_is() -> None:
    chosen = {one.partition("=")[0] for values in rendered.VARIANTS.values() for one in values if one.endswith("=true")}
    chosen |= {"egress.direct.enabled"}
    off = {name for name, value in _values(yaml.safe_load((CHART / "values.yaml").read_text())) if value is False}
    assert off - chosen == GIVES_NOTHING


def test_every_image_of_the_chart_is_in_a_row() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())["images"]
    images = {name for name, value in values.items() if not value}
    seen = {
        one["image"].rpartition("/")[2].partition(":")[0]
        for _, _, pod in rendered.everything()
        for one in containers.containers(pod)
    }
    # The last one is what a create names.
    assert images - seen - {"registry", "pullSecrets", "tag"} == {"runtime"}


def test_what_makes_pods_is_known_here() -> None:
    made = re.compile(r'"kind": "Pod",\s+"metadata"')
    makers = {
        str(one.relative_to(ROOT)) for one in (ROOT / "controlplane").rglob("*.py") if made.search(one.read_text())
    }
    inside = "controlplane/cluster/kubernetes"
    assert makers == {f"{inside}/pods/podspec.py", f"{inside}/builds/pod.py", f"{inside}/doctor/network_check.py"}


def test_pods_beside_sandboxes_have_volumes_that_the_api_server_takes() -> None:
    policy = named(rendered.variant("everything"), "ValidatingAdmissionPolicy", "rollbox-rollbox-sandboxes")
    (rule,) = [one for one in policy["spec"]["validations"] if "volumes of networks" in one["message"]]
    taken = set(re.findall(r"has\(one\.(\w+)\)", rule["expression"]))
    used = {
        kind
        for _, namespace, pod in rendered.made_by_programs()
        if namespace == rendered.SANDBOXES
        for volume in pod["spec"].get("volumes", ())
        for kind in volume.keys() - {"name"}
    }
    assert used == {"emptyDir", "hostPath", "image", "persistentVolumeClaim"}
    assert taken == used | {"configMap", "downwardAPI", "projected", "secret"}


def test_pods_without_anything_of_the_node_can_have_users_of_their_own() -> None:
    apart: set[str] = set()
    powerful: set[str] = set()
    for name, pod in pods(render(*rendered.COMMON, "platform.userNamespaces=true", as_json=rendered.JSON_VALUES)):
        (apart if pod["spec"].get("hostUsers") is False else powerful).add(name)
    assert powerful == {
        "DaemonSet rollbox-installer",
        "DaemonSet rollbox-node",
        "DaemonSet rollbox-peers",
        "StatefulSet rollbox-registry",
    }
    assert {"Deployment rollbox-gateway", "Deployment rollbox-controlplane", "StatefulSet rollbox-redis"} <= apart
    assert not [name for name, pod in pods(render()) if "hostUsers" in pod["spec"]]


def test_users_of_their_own_are_refused_where_the_api_server_would_leave_them_out() -> None:
    told = ("template", "rollbox", str(CHART), "--set", "images.registry=r,platform.userNamespaces=true")
    with pytest.raises(ChartError, match=r"platform\.userNamespaces needs Kubernetes 1\.33, and this is v1\.32\.0"):
        run(*told, "--kube-version", "1.32.0")


def _values(tree: Json, name: str = "") -> Iterator[tuple[str, object]]:
    for key, value in tree.items():
        own = f"{name}.{key}" if name else key
        yield from _values(value, own) if isinstance(value, dict) else [(own, value)]


def _plain() -> Json:
    return {
        "metadata": {"labels": {"app.kubernetes.io/name": "rollbox", "app.kubernetes.io/component": "x"}},
        "spec": {
            "automountServiceAccountToken": False,
            "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [
                {
                    "name": "x",
                    "image": "r.example.com/gateway:1",
                    "volumeMounts": [{"name": "v", "mountPath": "/v", "readOnly": True}],
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "readOnlyRootFilesystem": True,
                        "capabilities": {"drop": ["ALL"]},
                    },
                }
            ],
            "volumes": [{"name": "v", "emptyDir": {}}],
        },
    }


def _changed(path: str, value: object) -> Json:
    pod = copy.deepcopy(_plain())
    place: Any = pod["spec"]
    *way, last = path.split(".")
    for one in way:
        place = place[int(one)] if isinstance(place, list) else place[one]
    if value is None:
        del place[last]
    else:
        place[int(last) if isinstance(place, list) else last] = value
    return pod


OWN = "containers.0.securityContext"
CHANGES: list[tuple[str, object, str]] = [
    (f"{OWN}.readOnlyRootFilesystem", False, "restricted"),
    (f"{OWN}.readOnlyRootFilesystem", None, "restricted"),
    (f"{OWN}.allowPrivilegeEscalation", None, "baseline"),
    (f"{OWN}.capabilities", {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}, "restricted"),
    (f"{OWN}.capabilities", {"drop": ["ALL"], "add": ["KILL"]}, "baseline"),
    (f"{OWN}.capabilities", {"drop": ["ALL"], "add": ["SYS_ADMIN"]}, "privileged"),
    (f"{OWN}.capabilities", {"drop": ["NET_RAW"]}, "baseline"),
    (f"{OWN}.privileged", True, "privileged"),
    (f"{OWN}.runAsUser", 0, "baseline"),
    (f"{OWN}.appArmorProfile", {"type": "Unconfined"}, "privileged"),
    ("securityContext.seccompProfile", None, "baseline"),
    ("securityContext.seccompProfile", {"type": "Unconfined"}, "privileged"),
    ("securityContext.runAsUser", None, "restricted"),
    ("hostNetwork", True, "privileged"),
    ("hostPID", True, "privileged"),
    ("automountServiceAccountToken", None, "restricted"),
    ("containers.0.volumeMounts.0", {"name": "v", "mountPath": "/v"}, "restricted"),
    ("containers.0.env", [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}], "restricted"),
    ("containers.0.image", "r.example.com/redis:1", "restricted"),
    ("volumes.0", {"name": "v", "secret": {"secretName": "s"}}, "restricted"),
    ("volumes.0", {"name": "v", "projected": {"sources": [{"secret": {"name": "s"}}]}}, "restricted"),
    ("volumes.0", {"name": "v", "hostPath": {"path": "/etc"}}, "privileged"),
]


@pytest.mark.parametrize(("path", "value", "level"), CHANGES)
def test_a_change_of_a_manifest_changes_its_row(path: str, value: object, level: str) -> None:
    pod = _changed(path, value)
    before, after = (containers.row("x", [(one, containers.containers(one)[0])]) for one in (_plain(), pod))
    assert before == ("x", "65532", "read only", *[containers.NONE] * 4, "no")
    assert after != before
    assert security_levels.level(pod) == level


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("hostUsers", False),
        ("hostIPC", True),
        ("securityContext.sysctls", [{"name": "a", "value": "1"}]),
        (f"{OWN}.procMount", "Unmasked"),
        (f"{OWN}.seccompProfile", {"type": "Unconfined"}),
        ("volumes.0", {"name": "v", "csi": {"driver": "d"}}),
        ("containers.0.ports", [{"containerPort": 1, "hostPort": 1}]),
    ],
)
def test_a_field_that_no_cell_tells_is_noticed(path: str, value: object) -> None:
    assert containers.unknown(_plain()) == []
    assert len(containers.unknown(_changed(path, value))) == 1


def test_the_widest_form_of_a_container_is_told() -> None:
    forms = [_plain(), _changed("hostPID", True), _changed(f"{OWN}.capabilities", {"drop": ["ALL"], "add": ["KILL"]})]
    row = containers.row("x", [(one, containers.containers(one)[0]) for one in forms])
    assert (row[3], row[4]) == ("KILL", "PIDs")


def test_ways_are_those_of_all_policies_that_select_a_pod() -> None:
    def policy(**spec: object) -> Json:
        return {"kind": "NetworkPolicy", "metadata": {}, "spec": {"podSelector": {}, **spec}}

    pod, port = _plain(), {"port": 1, "protocol": "TCP"}
    peer = {"podSelector": {"matchLabels": {"app.kubernetes.io/name": "rollbox-sandbox"}}}
    closed = policy(policyTypes=["Ingress", "Egress"])
    opened = policy(policyTypes=["Ingress"], ingress=[{"from": [peer], "ports": [port]}])
    other = {**opened, "metadata": {"namespace": "other"}}
    held: list[list[Json]] = [[], [closed, other], [closed, opened]]
    rows = [ways.row("x", [("rollbox", pod, policies)])[2:] for policies in held]
    assert rows == [("anyone", "anyone"), ("none", "none"), ("sandbox 1", "none")]


def test_rights_of_the_same_thing_are_added_up() -> None:
    def granted(verb: str) -> list[Json]:
        rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": [verb]}]
        role = {"kind": "Role", "metadata": {"name": "r", "namespace": "rollbox"}, "rules": rules}
        reference = {"kind": "Role", "name": "r"}
        return [role, {**role, "kind": "RoleBinding", "roleRef": reference, "subjects": [{"name": "rollbox-a"}]}]

    assert rights.rows([granted("patch"), granted("get")]) == [("a", "release", "get, patch", "`pods`")]


def test_rows_that_are_written_anew_keep_why_and_a_new_one_has_none() -> None:
    head = ("a", "b", "why")
    text = "x\n\n| a | b | why |\n| --- | --- | --- |\n| one | 1 | since |\n\ny\n"
    anew = page.written(text, head, [("one", "2"), ("two", "3")])
    assert page.read(anew, head) == [("one", "2", "since"), ("two", "3", "")]
    assert anew.startswith("x\n\n|")
    assert anew.endswith("|\n\ny\n")
