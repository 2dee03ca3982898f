"""The operator's sweep and notices, against an API server in this process and the store in memory."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from structlog.typing import EventDict

from controlplane.clock import SystemClock
from controlplane.cluster.kubernetes.api_server.client import KubernetesClient
from controlplane.cluster.kubernetes.marks import FINALIZER, LABEL_INSTALLATION
from controlplane.model import EndCause, Sandbox, SandboxSpec, State
from controlplane.operator import sweep as sweep_module
from controlplane.operator.definitions import Definitions
from controlplane.operator.escalation import Escalation
from controlplane.operator.nodes import NodeNotices
from controlplane.operator.notices import Notices
from controlplane.operator.records import Records
from controlplane.operator.sweep import Sweep, stuck
from controlplane.store import MemoryStore, StoreLostError, UnreadableRecordError
from tests.support.eventually import eventually
from tests.support.fake_kubernetes import (
    EVENTS,
    NAMESPACE,
    NODE_EVENTS,
    PODS,
    FakeKubernetes,
    Fault,
    fake_kubernetes,
    node,
)

WHERE = {"namespace": NAMESPACE, "installation": "r"}


@dataclass
class Scene:
    api: FakeKubernetes
    store: MemoryStore
    sweep: Sweep
    nodes: NodeNotices
    definitions: Definitions


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    clock = SystemClock()
    store = MemoryStore(clock)
    async with (
        fake_kubernetes(tmp_path) as api,
        KubernetesClient.connect(tmp_path / "kubeconfig") as client,
    ):
        notices = Notices(client, clock, NAMESPACE)
        sweep = Sweep(client, Records(store, clock), notices, clock, Escalation(notices, clock), **WHERE)
        yield Scene(api, store, sweep, NodeNotices(client, notices, **WHERE), Definitions(client))


DELETED = "2026-01-01T00:00:00Z"


def pod(name: str, *, held: bool = True, deleted: str | None = DELETED) -> dict[str, Any]:
    about = {"name": name, "uid": "u", "labels": {LABEL_INSTALLATION: "r"}, "finalizers": [FINALIZER] if held else []}
    return {"metadata": {**about, **({"deletionTimestamp": deleted} if deleted else {})}, "status": {}}


def sandbox(name: str, *, ended: bool = False) -> Sandbox:
    end = EndCause("deleted", "d", 1, "alice") if ended else None
    state = State.ENDING if ended else State.RUNNING
    return Sandbox(name, "alice", SandboxSpec(image="a"), 1, 1 << 50, "f", state=state, ready_at_ms=1, end=end)


async def test_what_was_deleted_and_has_ended_is_released_with_a_notice_and_others_stay(scene: Scene) -> None:
    now = datetime.now(UTC).isoformat()
    kept = [pod("sb-lives", deleted=None), pod("sb-just-deleted", deleted=now), pod("sb-unheld", held=False)]
    for one in (pod("sb-unknown"), pod("sb-ended"), *kept):
        await scene.api.put(PODS, one)
    await scene.store.restore(sandbox("sb-ended", ended=True))
    await scene.sweep.once()
    assert list(scene.api.objects[PODS]) == [one["metadata"]["name"] for one in kept]
    events = scene.api.objects[EVENTS].values()
    released = {(event["reason"], event["involvedObject"]["name"]) for event in events}
    assert released == {("Removed", "sb-unknown"), ("Removed", "sb-ended")}


async def test_an_end_that_no_control_plane_takes_down_is_recorded_first(scene: Scene) -> None:
    await scene.api.put(PODS, pod("sb-1"))
    await scene.store.restore(sandbox("sb-1"))
    await scene.sweep.once()
    record = await scene.store.get("sb-1")
    assert record is not None
    assert record.end is not None
    assert (record.state, record.end.cause, record.end.by) == (State.ENDING, "sandbox_lost", "operator")
    assert list(scene.api.objects[PODS]) == ["sb-1"], "the control plane may still release it"
    await scene.sweep.once()
    assert scene.api.objects[PODS] == {}


@pytest.mark.parametrize("trouble", [StoreLostError(), UnreadableRecordError("sb-odd", "it is odd")])
async def test_a_store_that_is_being_rebuilt_or_cannot_be_read_condemns_nobody(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, trouble: Exception
) -> None:
    asked: list[str] = []

    async def get(sandbox_id: str) -> Sandbox | None:
        asked.append(sandbox_id)
        if sandbox_id == "sb-odd":
            raise trouble
        return None

    for name in ("sb-odd", "sb-unknown"):
        await scene.api.put(PODS, pod(name))
    monkeypatch.setattr(scene.store, "get", get)
    monkeypatch.setattr(sweep_module, "EVERY_S", 0.01)
    sweep = asyncio.create_task(scene.sweep.run())
    # The second sweep begins: the first one has done all that it does.
    await eventually(lambda: asked.count("sb-odd") >= 2)
    sweep.cancel()
    await asyncio.wait([sweep])
    readable = isinstance(trouble, UnreadableRecordError)
    assert list(scene.api.objects[PODS]) == (["sb-odd"] if readable else ["sb-odd", "sb-unknown"])


async def test_a_sweep_that_failed_is_made_again(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    await scene.api.put(PODS, pod("sb-1"))
    scene.api.faults = [Fault("GET", "/pods", 403, "Forbidden")]
    monkeypatch.setattr(sweep_module, "EVERY_S", 0.01)
    sweep = asyncio.create_task(scene.sweep.run())
    await eventually(lambda: not scene.api.objects[PODS])
    sweep.cancel()
    await asyncio.wait([sweep])


async def test_a_cordon_is_told_once_on_every_sandbox_there(scene: Scene) -> None:
    await scene.api.put(PODS, pod("sb-1"))
    cordoned = {**node(), "spec": {"unschedulable": True}}
    for seen in (node(), cordoned, cordoned):
        await scene.nodes.seen(seen, deleted=False)
    (event,) = scene.api.objects[EVENTS].values()
    assert event["reason"] == "NodeCordoned"
    await scene.nodes.seen(node(), deleted=False)
    await scene.nodes.seen(cordoned, deleted=True)


async def test_an_event_that_cannot_be_written_stops_nothing(scene: Scene) -> None:
    await scene.api.put(PODS, pod("sb-orphan"))
    scene.api.faults = [Fault("POST", "/events", 403, "Forbidden")]
    await scene.sweep.once()
    assert scene.api.objects[PODS] == {}


async def test_a_cluster_without_a_definition_is_told_of_with_the_command(scene: Scene, said: list[EventDict]) -> None:
    await scene.definitions.check("pools")
    (line,) = [one for one in said if one["event"] == "definition missing or outdated"]
    assert "-f files/crds/sandboxpools.rollbox.dev.yaml" in line["detail"]
    scene.api.faults = [Fault("GET", "sandboxquotas", 403, "Forbidden")]
    await scene.definitions.check("quotas")
    assert said[-1]["event"] == "cannot read definition, retrying"


async def test_what_no_kubelet_stops_is_told_once_keeps_its_place_and_is_let_go_of_when_it_ends(
    scene: Scene, said: list[EventDict]
) -> None:
    await scene.api.put(PODS, {**pod("sb-hung", held=False), "spec": {"nodeName": "n1"}})
    for _ in range(3):
        await scene.sweep.once()
    assert [*scene.api.objects[PODS]] == ["sb-hung"], "the scheduler must go on counting it"
    assert not [call for call in scene.api.calls if call.startswith(("DELETE", "PATCH"))]
    (on_pod,), (on_node,) = scene.api.objects[EVENTS].values(), scene.api.objects[NODE_EVENTS].values()
    assert {on_pod["reason"], on_node["reason"]} == {"SandboxNotStopped"}
    assert (on_pod["involvedObject"]["name"], on_node["involvedObject"]) == (
        "sb-hung",
        {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "n1"},
    )
    await scene.api.remove(PODS, "sb-hung")
    await scene.sweep.once()
    assert [one["event"] for one in said] == ["node does not stop an ended sandbox", "sandbox stopped"]


async def test_a_sweep_holds_little_of_each_pod(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of whole pods are more than the operator's memory limit."""
    seen: list[Any] = []

    def kept(pods: Any, now_ms: int) -> Any:
        seen.extend(pods)
        return stuck(pods, now_ms)

    whole = pod("sb-1")
    await scene.api.put(PODS, {**whole, "spec": {**whole.get("spec", {}), "containers": [{"name": "target"}]}})
    monkeypatch.setattr(sweep_module, "stuck", kept)
    await scene.sweep.once()
    assert [set(one["spec"]) for one in seen] == [{"nodeName"}]
