"""What the simulated cluster computes without a process: quantiles, Services, what its watch tells, its verdict."""

import asyncio
import json
from typing import Any

import pytest

from controlplane.cluster.kubernetes.marks import LABEL_SANDBOX
from rollbox.errors import SandboxLost
from tests.scale import report, requests
from tests.scale.__main__ import parsed
from tests.scale.burst import burst, quantile
from tests.scale.pods import Sidecars
from tests.scale.services import rules


def test_a_quantile_is_a_value_that_was_measured() -> None:
    values = [float(one) for one in range(1, 101)]
    assert [quantile(values, share) for share in (0, 50, 99, 100)] == [1.0, 51.0, 100.0, 100.0]
    assert quantile([], 99) == 0.0


async def test_a_burst_counts_failures_by_code_and_keeps_its_bound() -> None:
    running = most = 0

    async def call(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        if number % 5 == 0:
            raise SandboxLost("gone")
        return number

    outcomes = await burst(call, range(20), 3)
    assert most == 3
    assert sorted(outcomes.answers) == [one for one in range(20) if one % 5]
    assert outcomes.failed == {"sandbox_lost": 4}
    assert outcomes.figures()["answered"] == 16


def test_a_service_spreads_over_its_replicas_and_one_without_any_is_left_out() -> None:
    text = rules({"10.0.0.1": ["10.0.1.1", "10.0.1.2"], "10.0.0.2": []})
    assert "ip daddr 10.0.0.1 dnat to numgen random mod 2 map { 0 : 10.0.1.1, 1 : 10.0.1.2 }" in text
    assert "10.0.0.2" not in text


class Orders:
    """Standard input of the program that plays sidecars."""

    def __init__(self) -> None:
        self.stdin, self.stdout = self, None
        self.said: list[dict[str, Any]] = []

    def write(self, line: bytes) -> None:
        self.said.append(json.loads(line))


def pod(name: str, phase: str, **metadata: Any) -> dict[str, Any]:
    told = {"READY_URL": "http://10.0.0.5:8082", "READY_TOKEN": "t", "TOKEN_PUBLIC_KEY": "k"}
    env = [{"name": f"ROLLBOX_SIDECAR_{key}", "value": value} for key, value in told.items()]
    return {
        "metadata": {"name": name, "labels": {LABEL_SANDBOX: "true"}, **metadata},
        "spec": {"nodeName": "n", "containers": [{"name": "sidecar", "env": env}, {"name": "target"}]},
        "status": {"phase": phase, "podIP": "10.128.0.7"},
    }


def test_sidecars_hear_of_pods_that_run_and_of_their_ends_once() -> None:
    orders = Orders()
    sidecars = Sidecars(orders)  # type: ignore[arg-type]
    sidecars.put(pod("a", "Pending"))
    sidecars.put(pod("a", "Running"))
    sidecars.put(pod("a", "Running"))
    sidecars.put(pod("a", "Running", deletionTimestamp="now"))
    sidecars.remove(pod("a", "Failed"))
    address = "10.128.0.7"
    begun = {"begin": "a", "address": address, "ready": "10.0.0.5:8082", "token": "t", "key": "k"}
    assert orders.said == [begun, {"end": "a", "address": address}]
    assert not sidecars.pods_running


def test_what_runs_on_a_lost_node_is_silent_until_its_pod_is_gone() -> None:
    orders = Orders()
    sidecars = Sidecars(orders)  # type: ignore[arg-type]
    sidecars.put(pod("a", "Running"))
    assert sidecars.lose("n") == ["a"]
    sidecars.put(pod("a", "Running", deletionTimestamp="now"))
    sidecars.put(pod("b", "Running"))
    assert [next(iter(order)) for order in orders.said] == ["begin", "silence"]
    sidecars.remove(pod("a", "Running"))
    assert [next(iter(order)) for order in orders.said] == ["begin", "silence", "end"]


GOOD = {
    "fill": {"of_bare": 0.9, "failed": 0},
    "execs, round 1": {"failed": 0, "answered by another sandbox": 0},
    "upgrade": {"failures": {}},
    "nodes lost": {"ends": ["node_lost"]},
    "refill": {"failed": 0, "nodes_added": 1},
    "nodes go": {"nodes": 1, "gone_s": 40.0},
}


def test_a_simulation_is_good_when_every_target_was_measured_and_met() -> None:
    assert report.verdict(GOOD) == 0


@pytest.mark.parametrize(
    "figures",
    [
        {"fill": {"of_bare": 0.7, "failed": 0}},
        {"fill": {"of_bare": 0.9, "failed": 1}},
        {"execs, round 2": {"failed": 0, "answered by another sandbox": 1}},
        {"upgrade": {"failures": {"draining": 1}}},
        {"nodes lost": {"ends": ["exited", "node_lost"]}},
        {"nodes lost": {}},
        {"refill": {"failed": 1, "nodes_added": 1}},
        {"refill": {"failed": 0, "nodes_added": 0}},
        {"nodes go": {"nodes": 1}},
    ],
)
def test_it_is_not_where_one_is_missed_or_was_not_measured(figures: dict[str, dict[str, Any]]) -> None:
    assert report.verdict({**GOOD, **figures}) == 1


METRICS = """
# TYPE apiserver_request_total counter
apiserver_request_total{code="201",resource="pods",scope="resource",subresource="",verb="POST"} 90
apiserver_request_total{code="409",resource="pods",scope="resource",subresource="",verb="POST"} 10
apiserver_request_total{code="201",resource="pods",scope="resource",subresource="binding",verb="POST"} 100
apiserver_request_total{code="200",resource="pods",scope="cluster",subresource="",verb="WATCH"} 7
apiserver_request_total{code="200",resource="leases",scope="resource",subresource="",verb="PUT"} 500
"""


def test_requests_are_counted_for_each_pod_without_watches_and_leases() -> None:
    before = requests.counted(METRICS.replace(" 100", " 50"))
    assert requests.per_pod(before, requests.counted(METRICS), 25) == {"POST pods/binding": 2.0}
    assert requests.counted(METRICS)["POST pods"] == 100


def test_a_long_simulation_has_more_nodes_unless_it_is_told() -> None:
    assert parsed(["--long"]).nodes == 64
    assert parsed([]).nodes == 16
    assert parsed(["--long", "--nodes", "6"]).nodes == 6
