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
