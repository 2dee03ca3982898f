"""Which sandboxes read their image while it is fetched, what their pods have for that, and what is refused."""

from dataclasses import replace
from typing import Any

import pytest

from controlplane.cluster.kubernetes.nodes import lazy
from controlplane.cluster.kubernetes.nodes.lazy import LazyImages
from controlplane.cluster.kubernetes.nodes.nodes import Node
from controlplane.cluster.kubernetes.pods.podspec import pod
from controlplane.errors import Problem
from controlplane.model import SandboxSpec
from controlplane.model.spec import Pull
from tests.unit.controlplane.kubernetes.test_podspec import BOOT, DEFAULTS

LAZY = LazyImages("gvisor-lazy", "runsc-lazy", ("registry.example.com/estargz/",))
CONVERTED = "registry.example.com/estargz/python@sha256:" + "0" * 64
PLAIN = "python:3.12"
NODE = Node("a", "True", "", True, {}, (), {}, {}, frozenset({"runsc", "runsc-lazy"}))


def made(image: str, pull: Pull, has: LazyImages | None = LAZY) -> dict[str, Any]:
    spec = SandboxSpec(image=image, pull=pull)
    return pod("sb-1", spec, BOOT, replace(DEFAULTS, lazy=has), 1, lazily=lazy.chosen(has, spec, [NODE]))


@pytest.mark.parametrize(
    ("image", "pull", "has", "runtime_class"),
    [
        (CONVERTED, "auto", LAZY, "gvisor-lazy"),
        (CONVERTED, "lazy", LAZY, "gvisor-lazy"),
        (CONVERTED, "full", LAZY, "gvisor"),
        (CONVERTED, "auto", None, "gvisor"),
        (PLAIN, "auto", LAZY, "gvisor"),
    ],
)
def test_the_image_and_the_wish_decide(image: str, pull: Pull, has: LazyImages | None, runtime_class: str) -> None:
    manifest = made(image, pull, has)
    assert manifest["spec"]["runtimeClassName"] == runtime_class
    told = manifest["metadata"]["annotations"].get("io.containerd.cri.runtime-handler")
    assert told == ("runsc-lazy" if runtime_class == "gvisor-lazy" else None)


def test_an_image_that_a_node_may_have_mounted_lazily_is_pulled_again_where_it_is_wanted_whole() -> None:
    def policy(image: str, pull: Pull) -> str:
        return str(made(image, pull)["spec"]["containers"][1]["imagePullPolicy"])

    assert policy(CONVERTED, "full") == "Always"
    assert {policy(CONVERTED, "auto"), policy(CONVERTED, "lazy"), policy(PLAIN, "full")} == {"IfNotPresent"}


@pytest.mark.parametrize(
    ("has", "handlers", "image", "why"),
    [
        (None, {"runsc-lazy"}, CONVERTED, "lazyPulling.enabled"),
        (LAZY, {"runsc"}, CONVERTED, "1 nodes, a among them, do not have the runtime runsc-lazy"),
        (LAZY, {"runsc-lazy"}, PLAIN, "convert it"),
        (LAZY, {"runsc-lazy"}, "registry.example.com/estargz-2/python:1", "convert it"),
    ],
)
def test_lazy_pulling_that_is_not_to_be_had_is_refused(
    has: LazyImages | None, handlers: set[str], image: str, why: str
) -> None:
    nodes = [replace(NODE, handlers=frozenset(handlers))]
    with pytest.raises(Problem, match=why) as refused:
        lazy.check(has, SandboxSpec(image=image, pull="lazy"), nodes)
    assert (refused.value.code, refused.value.details["option"]) == ("unsupported", "pull")
    for pull in ("auto", "full"):
        lazy.check(has, SandboxSpec(image=image, pull=pull), nodes)


def test_any_image_may_be_wanted_lazily_where_the_mirror_converts() -> None:
    converts = replace(LAZY, converted=LAZY.repositories[0])
    lazy.check(converts, SandboxSpec(image=PLAIN, pull="lazy"), [NODE])
    # What it converts is not what these nodes mount.
    with pytest.raises(Problem, match="convert it"):
        lazy.check(replace(LAZY, converted="other.example.com/estargz/"), SandboxSpec(image=PLAIN, pull="lazy"), [NODE])


@pytest.mark.parametrize("handlers", [None, frozenset({"runsc-lazy"})])
def test_a_node_that_has_it_or_does_not_say_is_enough(handlers: frozenset[str] | None) -> None:
    lazy.check(LAZY, SandboxSpec(image=CONVERTED, pull="lazy"), [replace(NODE, handlers=handlers)])


OTHER = replace(NODE, name="b", labels={"pool": "old"}, handlers=frozenset({"runsc"}))


@pytest.mark.parametrize(
    ("nodes", "labels", "is_lazy"),
    [
        ([NODE], {}, True),
        ([NODE, OTHER], {}, False),
        ([NODE, replace(OTHER, handlers=None)], {}, False),
        ([replace(NODE, labels={"pool": "new"}), OTHER], {"pool": "new"}, True),
        ([], {}, False),
    ],
)
def test_unless_it_is_asked_for_images_are_mounted_lazily_only_where_every_node_can(
    nodes: list[Node], labels: dict[str, str], is_lazy: bool
) -> None:
    spec = SandboxSpec(image=CONVERTED, node_selector=labels)
    lazily = lazy.chosen(LAZY, spec, nodes)
    assert (lazily is not None) is is_lazy
    # Nodes that can may have mounted the image lazily, and then have no layers of it.
    assert lazy.pull_policy(LAZY, lazily, spec) == ("IfNotPresent" if is_lazy else "Always")


def test_the_runtime_class_may_name_the_nodes_that_can() -> None:
    spec = SandboxSpec(image=CONVERTED)
    nodes = [replace(NODE, labels={"lazy": "true"}), OTHER]
    assert lazy.chosen(replace(LAZY, selector={"lazy": "true"}), spec, nodes) is not None
    assert lazy.chosen(LAZY, spec, nodes) is None


def test_a_sandbox_that_asks_for_it_comes_to_no_node_that_cannot() -> None:
    wish = SandboxSpec(image=CONVERTED, pull="lazy")
    with pytest.raises(Problem, match=r"1 nodes, b among them.*node_selector"):
        lazy.check(LAZY, wish, [NODE, OTHER])
    lazy.check(
        LAZY, wish.model_copy(update={"node_selector": {"pool": "new"}}), [replace(NODE, labels={"pool": "new"}), OTHER]
    )


def test_sandboxes_with_a_runtime_for_devices_get_their_image_whole() -> None:
    own, node = replace(LAZY, devices=False), nodes(1)
    one, none = (SandboxSpec(image=CONVERTED, pull="lazy", gpu=count) for count in (1, 0))
    assert lazy.chosen(own, one, node) is None
    assert lazy.chosen(own, none, node) is own
    assert lazy.chosen(LAZY, one, node) is LAZY
    lazy.check(own, none, node)
    with pytest.raises(Problem, match=r"pull lazy: sandboxes with a GPU .*gpu\.handler"):
        lazy.check(own, one, node)


def nodes(count: int, *, without: int = 0) -> list[Node]:
    found = []
    for number in range(count):
        handlers = frozenset({"runsc"} if number < without else {"runsc", "runsc-lazy"})
        found.append(replace(NODE, name=f"n{number:04}", handlers=handlers))
    return found


def test_auto_avoids_the_few_nodes_that_mount_nothing_now_and_does_without_where_they_are_many() -> None:
    spec = SandboxSpec(image=CONVERTED)
    few, many = {"n0001"}, {f"n{number:04}" for number in range(6)}
    assert lazy.chosen(LAZY, spec, nodes(10), few) is LAZY
    assert lazy.chosen(LAZY, spec, nodes(10), many) is None
    assert lazy.chosen(LAZY, spec, nodes(1), {"n0000"}) is None
    found = lazy.confined(LAZY, "sb-1", spec, nodes(10), few)
    assert found == {"nodeSelectorTerms": [{"matchFields": lazy.not_on(["n0001"])}]}
    assert lazy.confined(LAZY, "sb-1", spec, nodes(10), ()) is None


def test_an_affinity_names_a_bounded_number_of_nodes() -> None:
    spec = SandboxSpec(image=CONVERTED, pull="lazy")
    found = lazy.confined(LAZY, "sb-1", spec, nodes(1_000, without=500), {"n0700"})
    assert found is not None
    named = {one["matchFields"][0]["values"][0] for one in found["nodeSelectorTerms"]}
    assert len(named) == lazy.MOST_NAMED
    assert min(named) >= "n0500"
    assert "n0700" not in named
    assert found != lazy.confined(LAZY, "sb-2", spec, nodes(1_000, without=500), {"n0700"})
