"""The sizing worksheet says what the preflight says."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from controlplane.capacity import InitContainer, NodeRoom, Room, amounts, of_pod
from controlplane.cluster.kubernetes.nodes.resources import request_of
from controlplane.lifecycle.preflight.arithmetic import Facts, forecast
from controlplane.model import Limits, SandboxSpec, Usage
from controlplane.model.base import MIB
from controlplane.model.overcommit import Overcommit
from controlplane.model.spec import Range
from docs.operating import sizing
from docs.site import values
from tests.docs.blocks import ROOT

GIB_OF_DISK = 1024
CHART = {
    one.name: one.default
    for top in values.read((ROOT / "helm/values.yaml").read_text())
    for one in (top, *top.inside, *(deep for inner in top.inside for deep in inner.inside))
}


def overhead() -> tuple[int, int, int, int, int]:
    """What the chart's runtime class sets aside for a sandbox."""
    assert CHART["runtimeClass.overhead"] == "{cpu: 5m, memory: 40Mi}"
    return amounts({"cpu": 5, "memory": 40 * MIB})


def fit(spec: SandboxSpec, node: sizing.Node, count: int) -> int:
    """How many of equal nodes' sandboxes the control plane says."""
    room = Room()
    room.replace(())
    have = amounts(
        {
            "cpu": node.millicores,
            "memory": node.mebibytes * MIB,
            "ephemeral-storage": node.disk_mebibytes * MIB,
            "pods": node.pods,
        }
    )
    for number in range(count):
        room.set_node(NodeRoom(f"n{number}", have, slots=sizing.SLOTS))
    request = of_pod([amounts(request_of(spec))], list[InitContainer](), overhead())
    return room.fit(request, {}, ())


@given(
    cpu=st.integers(10, 8000),
    memory=st.integers(32, 16384),
    asked=st.booleans(),
    node=st.builds(
        sizing.Node,
        st.integers(500, 128_000),
        st.integers(1024, 512 * 1024),
        st.integers(1024, 1024 * GIB_OF_DISK),
        st.integers(1, 500),
    ),
    count=st.integers(1, 5),
)
def test_it_counts_as_the_preflight_does(cpu: int, memory: int, asked: bool, node: sizing.Node, count: int) -> None:
    sandbox = sizing.Sandbox(cpu, memory, cpu if asked else None, memory if asked else None)
    millicores, size = Range(limit=cpu), Range(limit=memory * MIB)
    if asked:
        millicores, size = Range(request=cpu, limit=cpu), Range(request=memory * MIB, limit=memory * MIB)
    spec = SandboxSpec(image="i", cpu_millicores=millicores, memory_bytes=size)
    spec = Overcommit().filled(spec)
    each, _ = node.fits(sandbox)
    # The worksheet rounds a share of memory up to whole MiB, so it never says more.
    exact = fit(spec, node, count)
    assert each * count <= exact
    if spec.memory_bytes.request % MIB == 0:
        assert each * count == exact
    if each:
        assert sizing.nodes(each * count, sandbox, node) == count
        said = forecast(facts(each * count, exact))
        assert said.fits


def facts(count: int, room: int) -> Facts:
    """A run of so many on nodes with so much room, without quotas."""
    nothing = Usage()
    return Facts(
        owner="o",
        count=count,
        each=nothing,
        limits=Limits(),
        used=nothing,
        in_all=0,
        warm=0,
        room=room,
        room_when_empty=room,
        starts_at_once=8,
        start_ms=None,
    )


def test_its_numbers_are_the_charts() -> None:
    sandbox = sizing.Sandbox(1000, 1024)
    assert str(sandbox.cpu_share / 1000) == CHART["sandboxes.overcommit.cpu"]
    assert str(sandbox.memory_share / 1000) == CHART["sandboxes.overcommit.memory"]


def test_the_default_of_redis_holds_the_example() -> None:
    assert sizing.redis_megabytes(1024, 86_400) <= int(CHART["redis.maxMemoryMegabytes"]) + 10
