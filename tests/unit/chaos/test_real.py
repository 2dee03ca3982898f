"""The storm over a real cluster: what of it needs none."""

from __future__ import annotations

import random
from pathlib import Path

from tests.chaos.events import Log
from tests.chaos.real import COMPONENTS, MOST_KERNELS, RealGround, RealStorm, pod_owners, reported, some
from tests.support.installed import Installed

POOLED = '{"id": "sb-1", "owner": "pool:chaos"}'
CLAIMED = '{"id": "sb-1", "owner": "ann"}'


def pod(name: str, labels: dict[str, str] | None = None, **facts: str) -> dict[str, object]:
    """A pod as the API server tells it."""
    texts = {f"rollbox.dev/{fact}": value for fact, value in facts.items()}
    return {"metadata": {"name": name, "labels": labels, "annotations": texts}}


def storm(folder: Path, seed: int = 1) -> RealStorm:
    """A storm that has not begun."""
    stacks = {
        owner: Installed(f"http://{owner}", f"key-{owner}", owner, "s", "r", "r", "r-sandboxes")
        for owner in ("ann", "bob")
    }
    return RealStorm(RealGround(folder, stacks=stacks), seed, Log(folder / "storm.events"))


def test_a_pod_is_whose_claim_it_carries_and_others_pods_are_nobodys() -> None:
    ours = {"rollbox.dev/sandbox": "sb-1"}
    assert pod_owners([pod("sb-1", ours, record=POOLED)]) == {"sb-1": "pool:chaos"}
    assert pod_owners([pod("sb-1", ours, record=POOLED, claim=CLAIMED)]) == {"sb-1": "ann"}
    assert pod_owners([pod("other", None, record=CLAIMED), pod("bare", ours)]) == {}


def test_a_pod_that_its_node_does_not_stop_is_excused_once_the_platform_says_so() -> None:
    about = {"involvedObject": {"kind": "Pod", "name": "sb-1"}}
    node = {"reason": "SandboxNotStopped", "involvedObject": {"kind": "Node", "name": "n1"}}
    assert reported([{**about, "reason": "Killing"}, node]) == set()
    assert reported([{**about, "reason": "SandboxNotStopped"}, node]) == {"sb-1"}


def test_half_of_the_links_are_hit_the_same_ones_by_the_same_seed() -> None:
    links = {f"lxc{number}" for number in range(9)}
    assert len(some(links, random.Random(3))) == 5
    assert some(links, random.Random(3)) == some(links, random.Random(3))
    assert (some((), random.Random(3)), some(["lxc1"], random.Random(3))) == ([], ["lxc1"])


def test_no_two_blows_hit_the_node_at_once_and_the_number_of_kernels_is_bounded(tmp_path: Path) -> None:
    raging = storm(tmp_path)
    assert {"kubelet", "containerd", "network", *COMPONENTS} <= {name for name in raging.kinds() if raging.may(name)}
    raging._down.update(("node", "redis"))
    assert {name for name in raging.kinds() if not raging.may(name)} == {
        "kubelet",
        "containerd",
        "network",
        "redis",
        "gateway and redis",
    }
    raging._kernels = MOST_KERNELS
    assert not raging.may("kernel killed")
    assert raging.may("gateway")


def test_clients_are_of_all_owners_in_turn(tmp_path: Path) -> None:
    raging = storm(tmp_path)
    assert [raging.account(number)[1] for number in range(3)] == ["ann", "bob", "ann"]
