"""What a pod requests, against an arithmetic that goes through its life moment by moment."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.capacity import NOTHING, Amounts, InitContainer, amounts, of_pod, words
from controlplane.capacity.amounts import larger, plus
from controlplane.cluster.kubernetes.nodes.pod_requests import counted, requests_of

MIB = 1 << 20
SMALL = st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9), st.integers(0, 2), st.just(0))
INIT = st.builds(InitContainer, SMALL, st.booleans())


def life(containers: list[Amounts], init: list[InitContainer], overhead: Amounts) -> Amounts:
    """The most that runs at any moment: each init container beside the sidecars before it, then all together."""
    moments: list[list[Amounts]] = []
    sidecars: list[Amounts] = []
    for one in init:
        moments.append([*sidecars, one.requests])
        if one.sidecar:
            sidecars.append(one.requests)
    moments.append([*sidecars, *containers])
    most = NOTHING
    for moment in moments:
        together = NOTHING
        for requests in moment:
            together = plus(together, requests)
        most = larger(most, together)
    return *plus(most, overhead)[:4], 1


@given(st.lists(SMALL, max_size=4), st.lists(INIT, max_size=5), SMALL)
def test_a_pod_requests_the_most_of_any_moment_of_its_life(
    containers: list[Amounts], init: list[InitContainer], overhead: Amounts
) -> None:
    assert of_pod(containers, init, overhead) == life(containers, init, overhead)


def test_what_the_pod_requests_as_a_whole_counts_in_place_of_its_containers() -> None:
    whole = (3, None, None, None, None)
    assert of_pod([(1, 1, 0, 0, 0), (1, 1, 0, 0, 0)], (), (1, 1, 0, 0, 0), whole) == (4, 3, 0, 0, 1)


def pod(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p", "namespace": "n"}, "spec": {"nodeName": "a", **spec}, "status": {}}


def container(cpu: str, memory: str, **more: Any) -> dict[str, Any]:
    return {"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}, **more}


@pytest.mark.parametrize(
    ("spec", "requested"),
    [
        ({"containers": [{"name": "c"}]}, (0, 0)),
        ({"containers": [container("100m", "1Mi"), container("0.5", "1Mi")]}, (600, 2 * MIB)),
        # Fractions count as a whole, as Kubernetes rounds requests.
        ({"containers": [container("1m", "1500m")]}, (1, 2)),
        # One that ends before the others counts only if it needs more than they do.
        ({"containers": [container("1", "1Mi")], "initContainers": [container("2", "0")]}, (2000, MIB)),
        # A native sidecar runs beside them.
        (
            {
                "containers": [container("1", "1Mi")],
                "initContainers": [container("2", "1Mi", restartPolicy="Always"), container("2", "5Mi")],
            },
            (4000, 6 * MIB),
        ),
        ({"containers": [container("1", "1Mi")], "overhead": {"cpu": "10m", "memory": "48Mi"}}, (1010, 49 * MIB)),
        ({"containers": [container("1", "1Mi")], "resources": {"requests": {"cpu": "3"}}}, (3000, MIB)),
    ],
)
def test_requests_are_read_from_a_pod(spec: dict[str, Any], requested: tuple[int, int]) -> None:
    assert requests_of(pod(**spec)) == (*requested, 0, 0, 1)


def test_the_larger_amount_counts_while_a_pod_is_resized() -> None:
    resized = pod(containers=[container("1", "4Mi")])
    resized["status"]["containerStatuses"] = [
        {"name": "c", "allocatedResources": {"cpu": "2"}, "resources": {"requests": {"memory": "8Mi"}}}
    ]
    assert requests_of(resized) == (2000, 8 * MIB, 0, 0, 1)


@pytest.mark.parametrize(
    ("change", "counts"),
    [
        ({}, True),
        ({"status": {"phase": "Running"}}, True),
        ({"metadata": {"name": "p", "deletionTimestamp": "2026-01-01T00:00:00Z"}}, True),
        ({"status": {"phase": "Succeeded"}}, False),
        ({"status": {"phase": "Failed"}}, False),
        ({"spec": {}}, False),
    ],
)
def test_a_pod_counts_from_its_placement_until_it_has_ended_or_is_gone(change: dict[str, Any], counts: bool) -> None:
    assert counted({**pod(containers=[]), **change}) is counts


def test_amounts_in_words() -> None:
    names = ("cpu", "memory", "memory", "ephemeral-storage", "nvidia.com/gpu", "pods", "cpu")
    numbers = (300, 96 * MIB, 3 << 29, 1 << 30, 2, 1, -5)
    assert [words(*one) for one in zip(names, numbers, strict=True)] == [
        "0.3 cpu",
        "96 MiB of memory",
        "1.5 GiB of memory",
        "1 GiB of disk",
        "2 GPUs",
        "1 places for pods",
        "0 cpu",
    ]
    assert amounts({"cpu": 1, "pods": 2}) == (1, 0, 0, 0, 2)
