"""Which devices of a class nodes have, as their drivers publish them, and which of them are free."""

from collections.abc import Sequence
from typing import Any

import pytest

from controlplane.capacity.amounts import GPU
from controlplane.cluster.kubernetes.nodes.device_class import conditions, selected
from controlplane.cluster.kubernetes.nodes.devices import DeviceClaims, NodeDevices
from controlplane.cluster.kubernetes.nodes.node_room import NodeRooms
from controlplane.cluster.kubernetes.nodes.nodes import Fleet, Node
from controlplane.errors import Problem
from controlplane.model import SandboxSpec
from tests.support.fake_kubernetes import NAMESPACE, node

Json = dict[str, Any]
DRIVER = "gpu.example.com"
ONE = SandboxSpec(image="a", gpu=1)
USUAL = f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == 'gpu'"


def device_class(*expressions: str) -> Json:
    return {"metadata": {"name": "gpus"}, "spec": {"selectors": [{"cel": {"expression": one}} for one in expressions]}}


def a_slice(*devices: str | Json, on: str = "n1", generation: int = 1, name: str = "", driver: str = DRIVER) -> Json:
    listed = [
        {"name": one, "attributes": {"type": {"string": "gpu"}}} if isinstance(one, str) else one for one in devices
    ]
    pool = {"name": on, "generation": generation, "resourceSliceCount": 1}
    about = {"name": name or f"{on}-{driver}-{generation}"}
    return {"metadata": about, "spec": {"driver": driver, "pool": pool, "nodeName": on, "devices": listed}}


def a_claim(device: str, namespace: str = "others", on: str = "n1", **more: Any) -> Json:
    result = {"request": "device", "driver": DRIVER, "pool": on, "device": device, **more}
    about = {"name": f"claim-{device}", "namespace": namespace}
    return {"metadata": about, "status": {"allocation": {"devices": {"results": [result]}}}}


def known(
    slices: Sequence[Json], claims: Sequence[Json] = (), asked: Json | None = None, handler: str = ""
) -> NodeDevices:
    devices = NodeDevices(DeviceClaims("gpus", "r-gpu", "gvisor-gpu" if handler else "", handler))
    devices.classes.replace([device_class(USUAL) if asked is None else asked])
    devices.slices.replace(slices)
    devices.claims.replace(claims)
    return devices


def counted(devices: NodeDevices, **more: Any) -> tuple[int, int]:
    """How many there are on a node for sandboxes, and how many of them others hold."""
    equipped = devices.equip(Node.of(node(**more)))
    assert equipped.allocatable[GPU] == equipped.capacity[GPU]
    return equipped.allocatable[GPU], equipped.devices_of_others


@pytest.mark.parametrize(
    ("expression", "driver", "attributes", "holds"),
    [
        (USUAL, DRIVER, {"type": {"string": "gpu"}}, True),
        (USUAL, DRIVER, {"type": {"string": "mig"}}, False),
        (USUAL, DRIVER, {}, False),
        (USUAL, "other.example.com", {f"{DRIVER}/type": {"string": "gpu"}}, False),
        (USUAL.replace("'", '"').replace(" == ", "=="), DRIVER, {f"{DRIVER}/type": {"string": "gpu"}}, True),
        (f"device.attributes['{DRIVER}'].healthy == true", DRIVER, {"healthy": {"bool": False}}, False),
        (f"device.attributes['{DRIVER}'].index == 3", DRIVER, {"index": {"int": 3}}, True),
        # What only a scheduler can evaluate holds, by itself and beside what can be read here.
        ("device.driver.startsWith('x')", DRIVER, {}, True),
        (f"device.driver == 'x' || device.driver == '{DRIVER}'", DRIVER, {}, True),
        ("!(a && device.driver == 'x' && b)", DRIVER, {}, True),
        (f"device.attributes['{DRIVER}'].memory > 3 && device.driver == 'x'", DRIVER, {}, False),
    ],
)
def test_what_a_class_selects(expression: str, driver: str, attributes: Json, holds: bool) -> None:
    assert selected(conditions(device_class(expression)), driver, attributes) is holds


def test_all_selectors_of_a_class_have_to_hold_and_one_without_any_selects_all() -> None:
    both = conditions(device_class("device.driver == 'a'", "device.attributes['a'].x == 'y'"))
    assert selected(both, "a", {"x": {"string": "y"}})
    assert not selected(both, "a", {"x": {"string": "z"}})
    assert selected(conditions({"metadata": {"name": "gpus"}}), "any", {})


def test_a_node_has_the_devices_of_the_class_and_not_those_of_its_kubelet() -> None:
    other = {"name": "nic", "attributes": {"type": {"string": "nic"}}}
    assert counted(known([a_slice("a", "b", other), a_slice("c", on="n2")])) == (2, 0)
    held = {"cpu": "8", GPU: "8"}
    assert counted(known([]), allocatable=held, capacity=held) == (0, 0)


def test_what_cannot_be_allocated_is_not_counted() -> None:
    broken = [{"key": "sick", "effect": effect} for effect in ("NoSchedule", "NoExecute", "None")]
    attributes = {"type": {"string": "gpu"}}
    listed = [{"name": str(number), "attributes": attributes, "taints": [one]} for number, one in enumerate(broken)]
    assert counted(known([a_slice(*listed)])) == (1, 0)
    assert counted(known([a_slice("a", "b", generation=1), a_slice("b", generation=2)])) == (1, 0)


def test_devices_that_others_hold_are_known_by_their_claims() -> None:
    claims = [a_claim("a"), a_claim("b", adminAccess=True), a_claim("elsewhere"), {"metadata": {"name": "new"}}]
    assert counted(known([a_slice("a", "b")], claims)) == (2, 1)


def test_a_change_is_told_once() -> None:
    devices, told = known([a_slice("a")]), []
    devices.listen(lambda: told.append(counted(devices)))
    devices.slices.put(a_slice("a"))
    devices.slices.put(a_slice("a", "b"))
    devices.claims.put(a_claim("b"))
    devices.claims.remove(a_claim("b"))
    devices.slices.remove(a_slice("a", "b"))
    assert told == [(2, 0), (2, 1), (2, 0), (0, 0)]


def test_a_node_without_the_runtime_for_devices_has_none_and_is_kept_off() -> None:
    devices = known([a_slice("a")], handler="runsc-gpu")
    without, able = (Node.of(node(runtimeHandlers=[{"name": one}])) for one in ("runsc", "runsc-gpu"))
    silent = Node.of(node(runtimeHandlers=None))
    assert [devices.equip(one).allocatable[GPU] for one in (without, able, silent)] == [0, 1, 1]
    assert devices.unable([without, able, Node.of(node("n2"))]) == ["n1"]


def test_a_class_that_there_is_not_is_told_with_what_to_do() -> None:
    devices = known([a_slice("a")])
    devices.check(ONE)
    devices.classes.remove(device_class())
    assert counted(devices) == (0, 0)
    devices.check(SandboxSpec(image="a"))
    with pytest.raises(Problem, match=r"no DeviceClass gpus: install the driver.*docs/gpu\.md") as refused:
        devices.check(ONE)
    assert (refused.value.code, refused.value.details["option"]) == ("unsupported", "gpu")


def test_more_than_a_node_has_is_refused_whoever_holds_them() -> None:
    fleet, devices = Fleet({}, (), "runsc"), known([a_slice("a", "b")], [a_claim("a"), a_claim("b")])
    nodes = [devices.equip(Node.of(node()))]
    fleet.check(SandboxSpec(image="a", gpu=2), nodes)
    with pytest.raises(Problem, match="gpu needs 3 devices for sandboxes on one node; the largest node, n1, has 2"):
        fleet.check(SandboxSpec(image="a", gpu=3), nodes)


def test_devices_of_sandboxes_count_by_their_pods_and_those_of_others_by_their_claims() -> None:
    fleet, devices = Fleet({}, (), "runsc"), known([a_slice("a", "b", "c")], [a_claim("a")])
    rooms = NodeRooms(fleet, NAMESPACE, "r", lambda: None, packs=False, claims=True)
    rooms.see(devices.equip(Node.of(node())))
    rooms.room.know()
    assert rooms.room.fit(fleet.request(ONE), {}) == 2

    def a_pod(name: str, namespace: str, labels: Json, requests: Json) -> Json:
        container = {"name": "target", "resources": {"requests": requests}}
        spec = {"nodeName": "n1", "resourceClaims": [{"name": "gpu-0"}], "containers": [container]}
        return {"metadata": {"name": name, "namespace": namespace, "labels": labels}, "spec": spec}

    rooms.pods.put(a_pod("p", "others", {}, {GPU: "1"}))
    assert rooms.room.fit(fleet.request(ONE), {}) == 2
    ours = {"rollbox.dev/installation": "r", "rollbox.dev/sandbox": "true"}
    rooms.beside(known([]).slices).put(a_pod("sb-1", NAMESPACE, ours, {}))
    assert rooms.room.fit(fleet.request(ONE), {}) == 1
