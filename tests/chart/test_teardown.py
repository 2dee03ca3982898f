"""The hook before an uninstall says which sandboxes keep it from its end."""

from __future__ import annotations

import importlib
import json
from typing import Any

import pytest

from tests.support.helm import CHART, named, render


def pod(number: int, node: str) -> dict[str, Any]:
    """One that its node was told to end long ago."""
    meta = {"name": f"sb-{number}", "deletionTimestamp": "2026-01-01T00:00:00Z"}
    return {"metadata": meta, "spec": {"nodeName": node} if node else {}}


def test_what_does_not_end_is_named_with_its_node_and_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(CHART / "files"))
    hook, api = importlib.import_module("hooks.teardown"), importlib.import_module("hooks.api")
    stuck = [pod(number, "node-1" if number else "") for number in range(7)]
    monkeypatch.setattr(hook, "call", lambda _, path: {"items": stuck if "sandbox" in path else []})
    monkeypatch.setattr(hook, "gone", lambda method, *_: method == "PATCH")
    settings = json.loads(named(render(), "ConfigMap", "rollbox-teardown")["data"]["settings.json"])
    with pytest.raises(api.HookError) as failed:
        hook.teardown({**settings, "timeoutSeconds": 0})
    said = str(failed.value)
    assert said.startswith("7 sandboxes do not end: sb-0 on no node, sb-1 on node-1, sb-2 on node-1, ")
    assert "and 2 more" in said
    assert f"kubectl describe pod -n {settings['sandboxNamespace']} NAME" in said
    assert "kubectl delete pod --force" in said


INSTALLER = ("nodeAgent.enabled=true", "nodeAgent.installer.enabled=true")
OTHER = {"key": "example.com/other", "effect": "NoSchedule"}


class Api:
    """An API server with nodes: the first writes of each are refused, since somebody else has written too."""

    def __init__(self, error: type[Exception], nodes: list[dict[str, Any]], conflicts: int = 0) -> None:
        self.error, self.nodes, self.conflicts = error, {one["metadata"]["name"]: one for one in nodes}, conflicts
        self.away = False

    def call(self, method: str, path: str) -> dict[str, Any]:
        if self.away:
            raise OSError("no route")
        if path == "/api/v1/nodes":
            return {"items": [*self.nodes.values()]}
        return self.nodes[path.rpartition("/")[2]] if "/nodes/" in path else {"items": []}

    def gone(self, method: str, path: str, body: Any = None) -> bool:
        if "/nodes/" not in path:
            return method == "GET"
        node = self.nodes[path.rpartition("/")[2]]
        if self.conflicts or body["metadata"]["resourceVersion"] != node["metadata"]["resourceVersion"]:
            self.conflicts -= 1
            node["metadata"]["resourceVersion"] += "1"
            raise self.error(409, "changed")
        node["spec"]["taints"] = body["spec"]["taints"]
        del node["metadata"]["annotations"]["rollbox.dev/node"]
        return False


def node(name: str) -> dict[str, Any]:
    meta = {"name": name, "resourceVersion": "1", "annotations": {"rollbox.dev/node": "{}", "other": ""}}
    return {"metadata": meta, "spec": {"taints": [{"key": "rollbox.dev/unproven", "effect": "NoSchedule"}, OTHER]}}


@pytest.mark.parametrize(
    ("conflicts", "away", "said"),
    [
        (0, False, "2 nodes freed"),
        (3, False, "2 nodes freed"),
        (9, False, "1 nodes keep their taint (a)"),
        (0, True, "no route"),
    ],
)
def test_nodes_are_freed_or_told_and_never_hold_up_an_uninstall(
    monkeypatch: pytest.MonkeyPatch, conflicts: int, away: bool, said: str
) -> None:
    monkeypatch.syspath_prepend(str(CHART / "files"))
    hook, module = importlib.import_module("hooks.teardown"), importlib.import_module("hooks.api")
    settings = json.loads(named(render(*INSTALLER), "ConfigMap", "rollbox-teardown")["data"]["settings.json"])
    bare = {"metadata": {"name": "c", "resourceVersion": "1"}, "spec": {}}
    api = Api(module.ApiError, [node("a"), node("b"), bare], min(conflicts, 5))
    monkeypatch.setattr(hook, "call", api.call)
    monkeypatch.setattr(hook, "gone", api.gone)
    api.away = away
    told = hook.free(settings)
    assert said in told
    if "freed" in said:
        assert [one["spec"]["taints"] for one in (api.nodes["a"], api.nodes["b"])] == [[OTHER], [OTHER]]
        assert api.nodes["a"]["metadata"]["annotations"] == {"other": ""}
    else:
        assert "kubectl taint nodes --all rollbox.dev/unproven-" in told


def test_only_with_an_installer_it_may_write_to_nodes() -> None:
    def rules(*values: str) -> str:
        return json.dumps(named(render(*values), "ClusterRole", "rollbox-rollbox-teardown")["rules"])

    assert "patch" not in rules()
    assert "patch" in rules(*INSTALLER)
    assert not json.loads(named(render(), "ConfigMap", "rollbox-teardown")["data"]["settings.json"])["nodes"]
