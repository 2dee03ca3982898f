"""The backend against an API server that fails on demand."""

import asyncio
import time
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.typing import EventDict

from controlplane.cluster import Boot, Placement, SandboxNode
from controlplane.cluster.kubernetes import KubernetesCluster
from controlplane.cluster.kubernetes.api_server.client import CALLS_AT_ONCE, KubernetesClient
from controlplane.cluster.kubernetes.pods.pods import Pods
from controlplane.cluster.kubernetes.pods.removal import ASKING_AT_ONCE, Removal
from controlplane.errors import Problem
from controlplane.model import Sandbox, SandboxSpec, dump_record, pool_owner
from tests.contract.cluster_suite import ClusterSuite
from tests.contract.kubernetes.conftest import Opener
from tests.support.eventually import eventually
from tests.support.fake_kubernetes import EVENTS, NODES, PODS, FakeKubernetes, Fault, node

BOOT = Boot("t", "k", "{}")
SPEC = SandboxSpec(image="a")


@pytest.fixture
def spec() -> SandboxSpec:
    return SPEC


class TestSuite(ClusterSuite):
    """See `ClusterSuite`."""


def terminated(role: str = "target", **words: Any) -> list[dict[str, Any]]:
    return [{"name": role, "state": {"terminated": {"exitCode": 1, "reason": "Error", **words}}}]


def on_node(cluster: KubernetesCluster, name: str) -> bool:
    """Whether the cluster has heard where this pod is."""
    return bool(cluster._pods._pods[name]["spec"].get("nodeName"))


async def first_death(cluster: KubernetesCluster) -> tuple[str, str, str]:
    async with aclosing(cluster.watch()) as deaths, asyncio.timeout(60):  # type: ignore[type-var]
        one = await anext(deaths)
        return one.sandbox_id, one.cause, one.detail


async def test_a_node_whose_kubelet_has_devices_gives_none_to_a_sandbox(api: FakeKubernetes, opener: Opener) -> None:
    devices = {"cpu": "8", "memory": "64Gi", "ephemeral-storage": "50Gi", "nvidia.com/gpu": "8"}
    await api.put(NODES, node(allocatable=devices, capacity=devices))
    async with opener() as cluster:
        with pytest.raises(Problem, match=r"no sandbox gets a GPU here: `gpu\.deviceClass` in the values of the chart"):
            cluster.check(SandboxSpec(image="a", gpu=1))
        cluster.check(SPEC)


async def test_what_fails_for_a_moment_is_asked_again(api: FakeKubernetes, cluster: KubernetesCluster) -> None:
    api.faults = [
        Fault("POST", "/pods", 429, "TooManyRequests", headers={"Retry-After": "1"}),
        Fault("POST", "/pods", 500),
        Fault("POST", "/pods", drop=True),
    ]
    began = time.monotonic()
    await cluster.start("sb-1", SPEC, BOOT)
    assert time.monotonic() - began >= 1.0, "Retry-After was not honoured"
    assert list(api.objects[PODS]) == ["sb-1"]
    await cluster.stop("sb-1")


async def test_a_create_whose_answer_was_lost_is_no_failure(api: FakeKubernetes, cluster: KubernetesCluster) -> None:
    api.faults = [Fault("POST", "/pods", drop=True, after=True)]
    await cluster.start("sb-1", SPEC, BOOT)
    assert list(api.objects[PODS]) == ["sb-1"]


@pytest.mark.parametrize(
    ("status", "reason", "message", "code", "word"),
    [
        (
            403,
            "Forbidden",
            'pods "x" is forbidden: exceeded quota: tight, requested: cpu=1',
            "capacity_unavailable",
            "tight",
        ),
        (
            403,
            "Forbidden",
            'pods "x" is forbidden: status unknown for quota: new, resources: pods',
            "capacity_unavailable",
            "new was declared a moment ago",
        ),
        (403, "Forbidden", 'pods is forbidden: User "u" cannot create resource', "internal", "cannot create"),
        (403, "Forbidden", 'pod rejected: RuntimeClass "gvisor" not found', "isolation_missing", "RuntimeClass"),
        (422, "Invalid", "spec.containers[1].image: Invalid value", "invalid_argument", "image"),
    ],
)
async def test_refusals_are_typed(
    api: FakeKubernetes, cluster: KubernetesCluster, *, status: int, reason: str, message: str, code: str, word: str
) -> None:
    api.faults = [Fault("POST", "/pods", status, reason, message)]
    with pytest.raises(Problem, match=word) as caught:
        await cluster.start("sb-1", SPEC, BOOT)
    assert caught.value.code == code
    assert api.calls.count(f"POST {PODS}") == 1, "what cannot succeed was asked again"


async def test_a_credential_that_is_not_known_for_a_moment_fails_no_start(
    api: FakeKubernetes, cluster: KubernetesCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controlplane.cluster.kubernetes.api_server.client.DISOWNED_S", 60.0)
    api.faults = [Fault("POST", "/pods", 401, "Unauthorized", times=2)]
    await cluster.start("sb-1", SPEC, BOOT)
    monkeypatch.setattr("controlplane.cluster.kubernetes.api_server.client.DISOWNED_S", 0.5)
    api.faults = [Fault("POST", "/pods", 401, "Unauthorized", times=1000)]
    with pytest.raises(Problem, match="expired") as caught:
        await cluster.start("sb-2", SPEC, BOOT)
    assert caught.value.code == "internal"


async def test_a_server_that_stays_away_is_given_up_at_the_deadline(
    api: FakeKubernetes, cluster: KubernetesCluster
) -> None:
    api.faults = [Fault("POST", "/pods", 503, "ServiceUnavailable", times=1000)]
    # The last try is cut short by the deadline: what is told is what the server said before.
    api.faults.insert(0, Fault("POST", "/pods", 503, "ServiceUnavailable", times=2))
    api.faults[1].delay_s = 3.5
    with pytest.raises(Problem, match="503"):
        await cluster.start("sb-1", SandboxSpec(image="a", start_timeout_ms=6_000), BOOT)
    # Two at once, and as many that take their time as there is time for.
    assert api.calls.count(f"POST {PODS}") <= 4


async def test_a_slow_server_is_not_waited_for_beyond_the_deadline(
    api: FakeKubernetes, cluster: KubernetesCluster
) -> None:
    api.faults = [Fault("POST", "/pods", delay_s=10)]
    with pytest.raises(Problem) as caught:
        await cluster.start("sb-1", SandboxSpec(image="a", start_timeout_ms=300), BOOT)
    assert caught.value.code == "upstream_timeout"


@pytest.mark.parametrize("left_ms", [0, 50, 400])
async def test_a_start_that_could_not_be_sent_in_time_accuses_nobody(
    said: list[EventDict], api: FakeKubernetes, cluster: KubernetesCluster, left_ms: int
) -> None:
    for _ in range(CALLS_AT_ONCE):
        await cluster._client._free.acquire()
    began_ms = cluster._clock.now_ms() - SPEC.start_timeout_ms + left_ms
    boot = replace(BOOT, start_by_ms=began_ms + SPEC.start_timeout_ms)
    with pytest.raises(Problem, match="the API server was not asked") as caught:
        await cluster.start("sb-1", SPEC, boot)
    assert caught.value.code == "start_queue_timeout"
    assert [one for one in said if "API server" in one["event"]] == []
    assert api.calls.count(f"POST {PODS}") == 0


async def test_what_a_node_turns_away_is_told_as_a_placement_and_ends_at_its_deadline(
    api: FakeKubernetes, cluster: KubernetesCluster
) -> None:
    spec = SandboxSpec(image="a", start_timeout_ms=2_000)
    await cluster.start("sb-1", spec, BOOT)
    seen = asyncio.create_task(first_death(cluster))
    pod = api.objects[PODS]["sb-1"]
    refused = {"phase": "Failed", "reason": "OutOfpods", "message": "Too many pods"}
    await api.put(PODS, {**pod, "spec": {**pod["spec"], "nodeName": "n1"}, "status": refused})
    async for placement in cluster.placements():
        if placement.turned_away_by:
            break
    assert (placement.node, placement.turned_away_by) == ("", "n1")
    assert placement.why == "the node turned the pod away: OutOfpods: Too many pods"
    assert (await seen)[:2] == ("sb-1", "capacity_unavailable")


async def test_autoscalers_may_end_what_nobody_has_and_nothing_else(
    api: FakeKubernetes, cluster: KubernetesCluster
) -> None:
    now_ms = cluster._clock.now_ms()
    warm = Sandbox("sb-1", pool_owner("p"), SPEC, now_ms, now_ms + 60_000, "f", pool="p")
    await cluster.start("sb-1", SPEC, replace(BOOT, unclaimed=True))
    await cluster.start("sb-2", SPEC, BOOT)

    def told(name: str) -> dict[str, str]:
        annotations: dict[str, str] = api.objects[PODS][name]["metadata"]["annotations"]
        return {key: value for key, value in annotations.items() if "rollbox" not in key}

    assert told("sb-1") == {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}
    kept = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "karpenter.sh/do-not-disrupt": "true"}
    assert told("sb-2") == kept
    await cluster.annotate("sb-1", {"ready_at_ms": "1"})
    assert told("sb-1") == {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}
    await cluster.annotate("sb-1", {"claim": dump_record(warm)})
    assert told("sb-1") == kept


async def test_a_death_is_seen(api: FakeKubernetes, cluster: KubernetesCluster) -> None:
    await cluster.start("sb-1", SPEC, BOOT)
    seen = asyncio.create_task(first_death(cluster))
    await api.patch_status("sb-1", containerStatuses=terminated(reason="OOMKilled", exitCode=137))
    assert (await seen)[:2] == ("sb-1", "oom_killed")


async def test_a_closed_watch_goes_on_where_it_ended(api: FakeKubernetes, cluster: KubernetesCluster) -> None:
    await cluster.start("sb-1", SPEC, BOOT)
    lists = api.calls.count(f"GET {PODS}")
    await eventually(lambda: api.watches(PODS))
    for _ in range(3):
        await api.close_streams()
        await eventually(lambda: [one for one in api.watches(PODS) if not one.is_set()])
    await api.patch_status("sb-1", containerStatuses=terminated())
    assert (await first_death(cluster))[:2] == ("sb-1", "sandbox_lost")
    assert api.calls.count(f"GET {PODS}") == lists, "it listed again instead of going on"


@pytest.mark.parametrize("gone", [True, False])
async def test_a_death_while_the_server_forgot_where_we_were_is_told(
    api: FakeKubernetes, cluster: KubernetesCluster, gone: bool
) -> None:
    await cluster.start("sb-1", SPEC, BOOT)
    await eventually(lambda: "sb-1" in cluster._pods)
    # No stream comes back until the past is forgotten.
    away = Fault("GET", "?watch", 500, times=1000)
    api.faults = [away]
    await api.close_streams()
    await eventually(lambda: not api.streams)
    if gone:
        await api.remove(PODS, "sb-1")
    else:
        await api.patch_status("sb-1", status_of="x", containerStatuses=terminated(exitCode=9))
    api.forget()
    away.times = 0
    sandbox_id, cause, detail = await first_death(cluster)
    assert (sandbox_id, cause) == ("sb-1", "sandbox_lost")
    assert ("removed from outside" if gone else "exit code 9") in detail


async def test_a_sandbox_that_is_not_where_its_push_said_is_ended_and_counted(
    api: FakeKubernetes, opener: Opener
) -> None:
    counted: list[None] = []
    async with opener(forged=lambda: counted.append(None)) as cluster:
        for name, pushed in (("sb-1", "10.0.0.1:7070"), ("sb-2", "10.0.0.9:7070"), ("sb-3", "10.0.0.1:8080")):
            await cluster.start(name, SPEC, BOOT)
            await cluster.annotate(name, {"address": f"http://{pushed}"})
        assert counted == []
        async with aclosing(cluster.watch()) as deaths, asyncio.timeout(60):  # type: ignore[type-var]
            for name in ("sb-1", "sb-2", "sb-3"):
                await api.patch_status(name, podIP="10.0.0.1")
            told = [await anext(deaths) for _ in range(2)]
        assert [(one.sandbox_id, one.cause) for one in told] == [("sb-2", "sandbox_lost"), ("sb-3", "sandbox_lost")]
        assert "10.0.0.9" in told[0].detail
        assert len(counted) == 2


async def test_a_pod_that_is_deleted_from_outside_keeps_its_finalizer_until_it_is_stopped(
    api: FakeKubernetes, cluster: KubernetesCluster
) -> None:
    await cluster.start("sb-1", SPEC, BOOT)
    seen = asyncio.create_task(first_death(cluster))
    pod = api.objects[PODS]["sb-1"]
    await api.put(PODS, {**pod, "metadata": {**pod["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}})
    sandbox_id, cause, detail = await seen
    assert (sandbox_id, cause) == ("sb-1", "sandbox_lost")
    assert "deleted from outside" in detail
    assert "sb-1" in api.objects[PODS]
    await cluster.stop("sb-1")
    assert api.objects[PODS] == {}


@pytest.mark.parametrize("how", ["silent", "deleted"])
async def test_a_lost_node_is_the_end_of_its_sandboxes(
    api: FakeKubernetes, cluster: KubernetesCluster, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controlplane.cluster.kubernetes.nodes.lost_nodes.SILENT_S", 0.1)
    await cluster.start("sb-1", SPEC, BOOT)
    pod = api.objects[PODS]["sb-1"]
    await api.put(PODS, {**pod, "spec": {**pod["spec"], "nodeName": "n1"}})
    await eventually(lambda: on_node(cluster, "sb-1"))
    seen = asyncio.create_task(first_death(cluster))
    await (api.remove(NODES, "n1") if how == "deleted" else api.put(NODES, node(ready="Unknown")))
    assert (await seen)[:2] == ("sb-1", "node_lost")
    assert cluster.starts_at_once() == 0


@pytest.mark.parametrize("said", ["False", "Unknown"])
async def test_a_node_that_is_not_ready_for_a_moment_loses_nothing(
    api: FakeKubernetes, cluster: KubernetesCluster, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controlplane.cluster.kubernetes.nodes.lost_nodes.SILENT_S", 600.0)
    await cluster.start("sb-1", SPEC, BOOT)
    pod = api.objects[PODS]["sb-1"]
    await api.put(PODS, {**pod, "spec": {**pod["spec"], "nodeName": "n1"}})
    await api.put(NODES, node(ready=said))
    await eventually(lambda: cluster.starts_at_once() == 0)
    await api.put(NODES, node(ready="True"))
    await eventually(lambda: cluster.starts_at_once() == 8)
    assert [one.death for one in await cluster.list()] == [None]
    assert not cluster._nodes._doubted


async def test_what_no_node_takes_in_time_says_why(api: FakeKubernetes, cluster: KubernetesCluster) -> None:
    await cluster.start("sb-1", SandboxSpec(image="a", start_timeout_ms=6_000), BOOT)
    words = "0/1 nodes are available: 1 Insufficient memory."
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": words}
    await api.patch_status("sb-1", conditions=[condition])
    sandbox_id, cause, detail = await first_death(cluster)
    assert (sandbox_id, cause) == ("sb-1", "capacity_unavailable")
    assert words in detail


async def test_where_a_pod_is_and_why_it_is_nowhere_is_told(api: FakeKubernetes, cluster: KubernetesCluster) -> None:
    words = "0/1 nodes are available: 1 Insufficient memory."
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": words}
    told: list[Placement] = []

    async def listen() -> None:
        async for one in cluster.placements():
            told.append(one)

    async with asyncio.TaskGroup() as group:
        listening = group.create_task(listen())
        await cluster.start("sb-1", SPEC, BOOT)
        assert cluster.placement("sb-1") is None
        await api.patch_status("sb-1", conditions=[condition])
        await eventually(lambda: told == [Placement("sb-1", "", words)])
        # The same again is no news, and a node ends the refusal.
        await api.patch_status("sb-1", phase="Pending")
        pod = api.objects[PODS]["sb-1"]
        await api.put(PODS, {**pod, "spec": {**pod["spec"], "nodeName": "n1"}})
        await eventually(lambda: told[1:] == [Placement("sb-1", "n1")])
        assert cluster.placement("sb-1") == Placement("sb-1", "n1")
        listening.cancel()


async def test_nodes_that_are_full_of_starts_are_avoided_and_not_forbidden(
    api: FakeKubernetes, cluster: KubernetesCluster
) -> None:
    await cluster.start("sb-1", SPEC, replace(BOOT, avoid=("n1", "n2")))
    affinity = api.objects[PODS]["sb-1"]["spec"]["affinity"]["nodeAffinity"]
    (wish,) = affinity.pop("preferredDuringSchedulingIgnoredDuringExecution")
    assert [one["values"] for one in wish["preference"]["matchFields"]] == [["n1"], ["n2"]]
    assert affinity == {}
    await cluster.start("sb-2", SPEC, BOOT)
    assert "affinity" not in api.objects[PODS]["sb-2"]["spec"]


async def test_a_node_without_the_runtime_is_told_at_once(
    api: FakeKubernetes, opener: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    # This server sends every event to both watches of events: the one of evictions may be the faster one.
    monkeypatch.setattr(Pods, "evicted", lambda *_: None)
    event = {
        "metadata": {"name": "e1"},
        "involvedObject": {"kind": "Pod", "name": "sb-1"},
        "message": 'Failed to create pod sandbox: rpc error: no runtime for "runsc" is configured',
    }
    async with opener() as cluster:
        await cluster.start("sb-1", SPEC, BOOT)
        await api.put(EVENTS, event)
        assert (await first_death(cluster))[:2] == ("sb-1", "isolation_missing")


@pytest.mark.parametrize("trouble", ["silent", "not ready", "deleted"])
async def test_a_stop_on_a_lost_node_does_not_wait_for_its_kubelet(
    api: FakeKubernetes, cluster: KubernetesCluster, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    monkeypatch.setattr("controlplane.cluster.kubernetes.pods.removal.LOOK_AGAIN_S", 0.1)
    monkeypatch.setattr("controlplane.cluster.kubernetes.nodes.lost_nodes.SILENT_S", 0.05)
    monkeypatch.setattr("controlplane.cluster.kubernetes.nodes.lost_nodes.NOT_READY_S", 0.05)
    api.kubelet = False
    await cluster.start("sb-1", SPEC, BOOT)
    pod = api.objects[PODS]["sb-1"]
    await api.put(PODS, {**pod, "spec": {**pod["spec"], "nodeName": "n1"}})
    await eventually(lambda: on_node(cluster, "sb-1"))
    if trouble == "deleted":
        await api.remove(NODES, "n1")
    else:
        await api.put(NODES, node(ready="Unknown" if trouble == "silent" else "False"))
    await eventually(lambda: cluster._pods.on_lost_node("sb-1"))
    await cluster.stop("sb-1")
    assert api.objects[PODS] == {}


async def test_what_a_ready_nodes_kubelet_does_not_stop_is_never_deleted_by_force(
    api: FakeKubernetes, cluster: KubernetesCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its object keeps its room as taken, until the kubelet has seen it end."""
    monkeypatch.setattr("controlplane.cluster.kubernetes.pods.removal.LOOK_AGAIN_S", 0.01)
    api.kubelet = False
    await cluster.start("sb-1", SPEC, BOOT)
    pod = api.objects[PODS]["sb-1"]
    await api.put(PODS, {**pod, "spec": {**pod["spec"], "nodeName": "n1"}})
    await eventually(lambda: on_node(cluster, "sb-1"))
    stop = asyncio.create_task(cluster.stop("sb-1"))
    looks = f"GET {PODS}/sb-1"
    await eventually(lambda: api.calls.count(looks) >= 3)
    assert "sb-1" in api.objects[PODS]
    assert sum(call.startswith("DELETE") for call in api.calls) == 1
    # The process is gone at last, and the kubelet says so.
    await api.remove(PODS, "sb-1")
    await stop


async def test_a_crowd_of_stops_asks_in_turn_and_waits_for_the_kubelets_together(
    api: FakeKubernetes, cluster: KubernetesCluster
) -> None:
    names = [f"sb-{number}" for number in range(60)]
    await asyncio.gather(*(cluster.start(name, SPEC, BOOT) for name in names))
    api.kubelet, api.change_s, api.most_changes_at_once = False, 0.01, 0
    stops = asyncio.gather(*(cluster.stop(name) for name in names))
    # Not one kubelet has confirmed, and all of them have been asked.
    await eventually(lambda: sum(call.startswith("DELETE") for call in api.calls) == len(names))
    assert api.most_changes_at_once <= 2 * ASKING_AT_ONCE
    for name in names:
        await api.remove(PODS, name)
    await stops


async def test_a_stop_that_nobody_confirms_says_so(
    api: FakeKubernetes, cluster: KubernetesCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = Removal._ask

    async def asked(removal: Removal, sandbox_id: str, grace_s: int) -> bool:
        # From here on only the kubelet is waited for.
        answer = await ask(removal, sandbox_id, grace_s)
        monkeypatch.setattr("controlplane.cluster.kubernetes.pods.removal.WITHIN_S", 0.1)
        return answer

    monkeypatch.setattr(Removal, "_ask", asked)
    api.kubelet = False
    await cluster.start("sb-1", SPEC, BOOT)
    with pytest.raises(Problem, match="upstream_timeout: the pod sb-1"):
        await cluster.stop("sb-1")


@pytest.mark.parametrize("method", ["DELETE", "PATCH"])
async def test_a_stop_that_is_refused_is_typed_and_can_be_repeated(
    api: FakeKubernetes, cluster: KubernetesCluster, method: str
) -> None:
    await cluster.start("sb-1", SPEC, BOOT)
    api.faults = [Fault(method, "/pods", 403, "Forbidden", "not allowed")]
    with pytest.raises(Problem, match="not allowed"):
        await cluster.stop("sb-1")
    await cluster.stop("sb-1")
    assert api.objects[PODS] == {}


async def test_where_a_sandbox_is_and_whether_its_node_is_well_is_known_without_a_call(
    api: FakeKubernetes, cluster: KubernetesCluster
) -> None:
    await cluster.start("sb-1", SPEC, BOOT)
    pod = api.objects[PODS]["sb-1"]
    await api.put(PODS, {**pod, "spec": {**pod["spec"], "nodeName": "n1"}})
    await eventually(lambda: cluster.node_of("sb-1") == SandboxNode("n1", ready=True))
    before = len(api.calls)
    assert cluster.node_of("sb-2") is None
    assert len(api.calls) == before
    await api.put(NODES, node(ready="Unknown"))
    await eventually(lambda: cluster.node_of("sb-1") == SandboxNode("n1", ready=False))


async def test_no_runtime_class_is_no_cluster(api: FakeKubernetes, opener: Opener) -> None:
    api.runtime_classes = {}
    with pytest.raises(Problem, match="isolation_missing: the cluster has no RuntimeClass gvisor"):
        async with opener():
            pass


async def test_no_node_with_the_runtime_is_no_cluster(api: FakeKubernetes, opener: Opener) -> None:
    await api.put(NODES, node(runtimeHandlers=[{"name": "runc"}]))
    with pytest.raises(Problem, match="isolation_missing: no node has the runtime runsc"):
        async with opener():
            pass


async def test_no_node_is_no_cluster(api: FakeKubernetes, opener: Opener) -> None:
    await api.remove(NODES, "n1")
    with pytest.raises(Problem, match="internal: none of the 0 nodes"):
        async with opener():
            pass


async def test_a_kernel_that_was_not_promised_is_refused(cluster: KubernetesCluster, opener: Opener) -> None:
    cluster.check_kernel("Linux version 4.19.0-gvisor #1 SMP")
    with pytest.raises(Problem, match="isolation_missing"):
        cluster.check_kernel("Linux version 6.1.0-13-amd64 (debian-kernel@lists.debian.org)")
    async with opener(required_kernel="any") as careless:
        careless.check_kernel("Linux version 6.1.0")
        assert "not checked" in careless.describe().isolation_detail


async def test_a_server_that_is_away_is_told_of_once_and_its_return_once(
    said: list[EventDict], api: FakeKubernetes, kubeconfig: Path
) -> None:
    async with KubernetesClient.connect(kubeconfig) as client:
        for _ in range(2):
            api.faults = [Fault("GET", NODES, drop=True, times=6)]
            await client.get(f"{NODES}/n1")
            await client.get(f"{NODES}/n1")
    assert [one["event"] for one in said if one["log_level"] != "debug"] == [
        *("the API server does not answer, calls are retried", "the API server answers again") * 2
    ]
    # The HTTP client itself asks once more when a connection that was used before breaks.
    assert all(one["calls_failed"] >= 3 for one in said if "calls_failed" in one)


async def test_a_server_that_is_away_breaks_watches_in_silence(
    said: list[EventDict], api: FakeKubernetes, cluster: KubernetesCluster
) -> None:
    await cluster.start("sb-1", SPEC, BOOT)
    api.faults = [Fault("GET", "?watch", drop=True, times=9)]
    await api.close_streams()
    await api.patch_status("sb-1", containerStatuses=terminated(reason="OOMKilled"))
    await first_death(cluster)
    assert "the watch failed, reconnecting" not in [one["event"] for one in said]


async def test_a_refusal_that_is_repeated_is_told_once(
    said: list[EventDict], api: FakeKubernetes, cluster: KubernetesCluster
) -> None:
    assert cluster
    api.faults = [Fault("GET", f"{PODS}?watch", 403, "Forbidden", "not allowed", times=3)]
    await api.close_streams()
    await eventually(lambda: not api.faults[0].times)
    assert [one["event"] for one in said] == ["the watch failed, reconnecting"]
