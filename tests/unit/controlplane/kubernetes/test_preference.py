"""Which nodes a start prefers: what they have of its image, where they have room, and that all starts agree."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.cluster.kubernetes.nodes.nodes import Node
from controlplane.cluster.kubernetes.nodes.preference import (
    MOST_PREFERRED,
    Candidates,
    Catalogue,
    HeldImage,
    NodePreference,
    key_of,
    preferred,
)
from controlplane.cluster.kubernetes.nodes.preference.preference import FAILED_IMAGES, FAILED_MS, NOTED_MS
from controlplane.cluster.kubernetes.nodes.resources import request_of
from controlplane.model import SandboxSpec

DIGEST = f"sha256:{'a' * 64}"
IMAGE = f"hub.test/swe@{DIGEST}"
LAYERS = {"sha256:base": 800, "sha256:own": 200}
SPEC = SandboxSpec(image=IMAGE)
ROOM = {"cpu": 64_000, "memory": 1 << 38, "ephemeral-storage": 1 << 40, "nvidia.com/gpu": 0}


class Now:
    now = 1_000_000

    def now_ms(self) -> int:
        return self.now


def node(name: str, **more: Any) -> Node:
    fields: dict[str, Any] = {
        "name": name,
        "ready": "True",
        "why_not_ready": "",
        "schedulable": True,
        "labels": {},
        "taints": (),
        "allocatable": ROOM,
        "capacity": ROOM,
        "handlers": None,
        "pods": 110,
    }
    return Node(**{**fields, **more})


NODES = [node(f"n{number}") for number in range(20)]


def pod(name: str, on: str, image: str = IMAGE, phase: str = "Running", waits: str = "") -> dict[str, Any]:
    """A sandbox's; `waits`: why its container does not run yet."""
    requests = {"cpu": "500m", "memory": "1Gi"}
    target = {"name": "target", "image": image, "resources": {"requests": requests}}
    ran = phase != "Pending"
    state = {"running": {}} if ran else {"waiting": {"reason": waits}}
    told = {"name": "target", "imageID": image if ran else "", "state": state}
    spec = {"nodeName": on, "containers": [{"name": "sidecar", "resources": {"requests": requests}}, target]}
    return {"metadata": {"name": name}, "spec": spec, "status": {"phase": phase, "containerStatuses": [told]}}


def wishes(preference: NodePreference, nodes: list[Node] = NODES, start: str = "sb-1", **more: Any) -> dict[str, int]:
    found = preference.wishes(
        start, more.get("spec", SPEC), more.get("layers", {}), nodes, lazily=more.get("lazily", False)
    )
    assert len(dict(found)) == len(found) <= MOST_PREFERRED
    assert all(1 <= weight <= 100 for _, weight in found)
    return dict(found)


def test_an_image_is_meant_by_its_digest_or_else_by_its_whole_name() -> None:
    assert key_of(IMAGE) == DIGEST
    assert key_of("python:3.12") == key_of("docker.io/library/python:3.12") == "docker.io/library/python:3.12"
    assert key_of("not a name") == "not a name"


def test_all_starts_of_an_image_that_no_node_has_agree_and_other_images_go_elsewhere() -> None:
    ways = {tuple(wishes(NodePreference(Now()), start=f"sb-{number}").items()) for number in range(16)}
    assert len(ways) == 1
    weights = [weight for _, weight in next(iter(ways))]
    # Far apart, so that no other score of the scheduler parts a group.
    assert all(one >= 2 * other for one, other in pairwise(weights[:5]))
    firsts = set()
    for number in range(40):
        spec = SandboxSpec(image=f"hub.test/swe@sha256:{number:064x}")
        firsts.add(max((found := wishes(NodePreference(Now()), spec=spec)), key=found.__getitem__))
    assert len(firsts) > 10


def test_a_node_with_the_image_comes_first_and_one_with_most_of_it_next() -> None:
    preference = NodePreference(Now())
    preference.catalogue.replace("n7", [HeldImage((DIGEST,), (), LAYERS)])
    preference.catalogue.replace("n3", [HeldImage(("sha256:other",), (), {"sha256:base": 800, "sha256:else": 5})])
    found = wishes(preference)
    assert [*found][:2] == ["n7", "n3"]
    assert found["n7"] == 100
    # The layers of an image that no node has are known from its manifest.
    new = SandboxSpec(image=f"hub.test/swe@sha256:{'b' * 64}")
    found = wishes(preference, spec=new, layers={"sha256:else": 5, "sha256:new": 5})
    assert next(iter(found)) == "n3"


def test_there_is_no_preference_where_all_nodes_have_it() -> None:
    preference = NodePreference(Now())
    for one in NODES:
        preference.catalogue.replace(one.name, [HeldImage((DIGEST,), (), LAYERS)])
    assert wishes(preference) == {}
    preference.catalogue.forget("n4")
    assert len(wishes(preference)) == MOST_PREFERRED
    assert wishes(preference, []) == {}


def test_many_nodes_with_the_image_share_the_starts() -> None:
    preference = NodePreference(Now())
    for one in NODES[:-1]:
        preference.catalogue.replace(one.name, [HeldImage((DIGEST,), (), LAYERS)])
    firsts = {next(iter(wishes(preference, start=f"sb-{number}"))) for number in range(100)}
    assert len(firsts) > 10


def test_an_image_spreads_when_the_nodes_that_have_it_run_many() -> None:
    preference = NodePreference(Now())
    first = next(iter(wishes(preference)))
    for number in range(16):
        preference.occupancy.put(pod(f"sb-{number}", first))
    assert next(iter(wishes(preference).items())) == (first, 94)
    for number in range(16, 40):
        preference.occupancy.put(pod(f"sb-{number}", first))
    found = wishes(preference)
    assert found[first] < max(found.values())


def test_what_is_seen_counts_until_the_agent_should_have_told_it() -> None:
    clock = Now()
    preference = NodePreference(clock)
    preference.note("n9", IMAGE)
    assert wishes(preference)["n9"] == 100
    clock.now += NOTED_MS
    assert wishes(preference).get("n9", 0) < 100
    # So does the node of a sandbox that is over, if it has run; one that is pulled yet counts as long as it is there.
    preference.occupancy.put(pod("sb-1", "n2", phase="Pending"))
    assert wishes(preference)["n2"] == 100
    preference.occupancy.put(pod("sb-1", "n2"))
    preference.occupancy.remove(pod("sb-1", "n2"))
    assert wishes(preference)["n2"] == 100
    clock.now += NOTED_MS
    assert wishes(preference).get("n2", 0) < 100
    preference.occupancy.put(pod("sb-2", "n2", phase="Pending"))
    preference.occupancy.remove(pod("sb-2", "n2", phase="Pending"))
    assert wishes(preference).get("n2", 0) < 100


@pytest.mark.parametrize("reason", ["ErrImagePull", "ImagePullBackOff"])
def test_a_node_that_does_not_get_an_image_is_not_preferred_for_it(reason: str) -> None:
    clock = Now()
    preference = NodePreference(clock)
    first, second, *_ = wishes(preference)
    preference.occupancy.put(pod("sb-1", first, phase="Pending"))
    assert wishes(preference)[first] == 100
    preference.occupancy.put(pod("sb-1", first, phase="Pending", waits=reason))
    for _ in range(2):
        assert first not in wishes(preference)
        assert next(iter(wishes(preference))) == second
        preference.occupancy.remove(pod("sb-1", first, phase="Pending"))
    # Another image may come there; after three of them none is led there that would have to be pulled.
    other = [SandboxSpec(image=f"hub.test/swe@sha256:{number:064x}") for number in range(1, 200)]
    assert any(first in wishes(preference, spec=spec) for spec in other)
    for number in range(FAILED_IMAGES - 1):
        preference.failed(first, f"hub.test/bad@sha256:{number:064x}")
    assert not any(first in wishes(preference, spec=spec) for spec in other)
    preference.catalogue.replace(first, [HeldImage((DIGEST,))])
    assert wishes(preference)[first] == 100
    preference.catalogue.forget(first)
    clock.now += FAILED_MS
    assert next(iter(wishes(preference))) == first


def test_a_pull_that_succeeds_after_all_is_seen() -> None:
    preference = NodePreference(Now())
    preference.occupancy.put(pod("sb-1", "n2", phase="Pending", waits="ErrImagePull"))
    preference.occupancy.put(pod("sb-1", "n2"))
    assert wishes(preference)["n2"] == 100
    preference.occupancy.remove(pod("sb-1", "n2"))
    assert preference.occupancy.running(DIGEST) == {}


def test_only_nodes_that_could_take_it_are_preferred() -> None:
    # With what is kept for other pods.
    small = {**ROOM, "memory": (request_of(SPEC)["memory"] + (1 << 30)) * 10 // 9}
    nodes = [
        node("full", allocatable=small),
        node("crowded", pods=1),
        node("away", ready="Unknown"),
        node("cordoned", schedulable=False),
        node("other", labels={"zone": "b"}),
        node("fits", labels={"zone": "a"}),
    ]
    preference = NodePreference(Now())
    for name in ("full", "crowded"):
        preference.occupancy.put(pod(f"sb-{name}", name, "other:1"))
    assert wishes(preference, nodes).keys() == {"other", "fits"}
    spec = SPEC.model_copy(update={"node_selector": {"zone": "a"}})
    assert wishes(preference, nodes, spec=spec).keys() == {"fits"}
    for name in ("full", "crowded"):
        preference.occupancy.put(pod(f"sb-{name}", name, "other:1", phase="Succeeded"))
    assert wishes(preference, nodes).keys() == {"other", "fits", "full", "crowded"}


def test_what_is_mounted_lazily_counts_for_lazy_starts_alone() -> None:
    preference = NodePreference(Now())
    preference.catalogue.replace("n7", [HeldImage((DIGEST,), (), LAYERS, lazy=True)])
    assert wishes(preference, lazily=True)["n7"] == 100
    assert wishes(preference).get("n7", 0) < 100


@pytest.mark.parametrize("layers", [{}, LAYERS])
def test_a_prefetch_to_some_nodes_takes_those_that_starts_prefer(layers: dict[str, int]) -> None:
    preference = NodePreference(Now())
    for number in (3, 5, 11):
        preference.catalogue.replace(f"n{number}", [HeldImage(("sha256:other",), (), {"sha256:base": 800})])
    assert [*preference.best(IMAGE, layers, NODES, 3)] == [*wishes(preference, layers=layers)][:3]
    preference.catalogue.replace("n7", [HeldImage((DIGEST,), (), LAYERS)])
    best = preference.best(IMAGE, layers, NODES, 3)
    assert best[0] == "n7"
    assert [*best] == [*wishes(preference, layers=layers)][:3]
    assert len(preference.best(IMAGE, layers, NODES, 100)) == len(NODES)
    # A node that takes no starts is no place for it, even if it is there.
    cordoned = [node("n7", schedulable=False), *(one for one in NODES if one.name != "n7")]
    assert "n7" not in preference.best(IMAGE, layers, cordoned, 100)
    full = [node(one.name, allocatable={**ROOM, "cpu": 1}) if one.name == best[1] else one for one in NODES]
    assert preference.best(IMAGE, layers, full, 3)[1] == best[2]


def test_a_list_of_pods_replaces_what_was_seen() -> None:
    preference = NodePreference(Now())
    preference.occupancy.replace([pod("sb-1", "n1"), pod("sb-2", "n1"), pod("sb-3", "n2", "other:1")])
    assert preference.occupancy.used("n1") == {
        "cpu": 2000,
        "memory": 4 << 30,
        "ephemeral-storage": 0,
        "nvidia.com/gpu": 0,
        "pods": 2,
    }
    preference.occupancy.replace([pod("sb-2", "n1")])
    assert preference.occupancy.running(DIGEST) == {"n1": 1}
    assert preference.occupancy.used("n2") == {}


images = st.lists(
    st.builds(
        HeldImage,
        st.lists(st.sampled_from("abc"), max_size=2).map(tuple),
        st.lists(st.sampled_from("def"), max_size=2).map(tuple),
        st.dictionaries(st.sampled_from(["l1", "l2", "l3", "l4"]), st.integers(0, 9), max_size=3),
        st.booleans(),
    ),
    max_size=4,
)


@given(st.lists(st.tuples(st.sampled_from(["n1", "n2", "n3"]), st.none() | images), max_size=12))
def test_the_catalogue_has_what_each_node_told_last_and_no_more(
    story: list[tuple[str, list[HeldImage] | None]],
) -> None:
    catalogue, model = Catalogue(), dict[str, list[HeldImage]]()
    for name, told in story:
        if told is None:
            catalogue.forget(name)
            model.pop(name, None)
        else:
            catalogue.replace(name, told)
            model[name] = told
    assert {*catalogue.nodes} == {*model}
    assert len(catalogue) == len({key for held in model.values() for one in held for key in (*one.digests, *one.names)})
    for key in "abcdef":
        last = {
            name: {k: one for one in held for k in (*one.digests, *one.names)}.get(key) for name, held in model.items()
        }
        shares = catalogue.shares(key, {}, ["n1", "n2", "n3"], lazily=True)
        assert {name for name, one in last.items() if one is not None} <= {
            n for n, share in shares.items() if share == 1.0
        }
    # Once nobody tells anything nothing is left.
    for name in model:
        catalogue.forget(name)
    assert (len(catalogue), [*catalogue.nodes]) == (0, [])
    assert not catalogue.shares("a", {"l1": 1, "l2": 1, "l3": 1, "l4": 1}, ["n1", "n2", "n3"], lazily=True)


def test_of_a_node_with_very_many_images_the_last_ones_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controlplane.cluster.kubernetes.nodes.preference.catalogue.MOST_IMAGES", 2)
    known = Catalogue()
    held = [HeldImage((f"sha256:{name}",)) for name in "acdb"]
    known.replace("n", held)
    whole = {name: known.shares(f"sha256:{name}", {}, ["n"], lazily=False) for name in "abcd"}
    assert whole == {"a": {}, "b": {"n": 1.0}, "c": {}, "d": {"n": 1.0}}
    known.replace("n", [held[0], held[3]])
    assert known.shares("sha256:a", {}, ["n"], lazily=False) == {"n": 1.0}


def test_a_tag_is_known_where_no_digest_is() -> None:
    preference = NodePreference(Now())
    preference.catalogue.replace("n7", [HeldImage((DIGEST,), ("hub.test/swe:1",), LAYERS)])
    assert wishes(preference, spec=SandboxSpec(image="hub.test/swe:1"))["n7"] == 100


nodes = [f"n{number}" for number in range(30)]


@given(
    st.lists(st.sampled_from(nodes), unique=True),
    st.dictionaries(st.sampled_from(nodes), st.floats(0, 1) | st.just(1.0)),
    st.dictionaries(st.sampled_from(nodes), st.integers(1, 50)),
    st.sets(st.sampled_from(nodes)),
    st.integers(0, 5).map("sb-{}".format),
)
def test_a_choice_is_bounded_and_prefers_no_node_for_nothing(
    able: list[str], shares: dict[str, float], running: dict[str, int], full: set[str], start: str
) -> None:
    found = preferred(DIGEST, start, Candidates(able, shares, running), lambda one: one not in full)
    assert len(found) <= MOST_PREFERRED
    assert len({name for name, _ in found}) == len(found)
    assert {name for name, _ in found} <= {*able} - full
    assert all(1 <= weight <= 100 for _, weight in found)
    lacking = [one for one in able if shares.get(one, 0) < 1]
    if not lacking:
        assert not found
    elif {*lacking} - full:
        assert found
    # One that has it all, and runs few, is worth more than any that has to pull.
    whole = [one for one in able if shares.get(one, 0) >= 1 and running.get(one, 0) < 16 and one not in full]
    if lacking and len(whole) < MOST_PREFERRED:
        assert {name for name, weight in found if weight == 100} == {*whole}


def test_nodes_hold_an_image_that_their_agents_or_sandboxes_have_told_and_not_one_that_they_pull() -> None:
    preference, clock = NodePreference(now := Now()), now
    assert preference.holding(SPEC, {}, NODES) == []
    preference.catalogue.replace("n1", [HeldImage((DIGEST,))])
    preference.occupancy.put(pod("ready", "n2"))
    preference.occupancy.put(pod("pulls", "n3", phase="Pending", waits="ContainerCreating"))
    assert preference.holding(SPEC, {}, NODES) == ["n1", "n2"]
    # Neither does one that a prefetch is about to fill, until it says so; what a node has it keeps meanwhile.
    preference.expect("n3", SPEC.image)
    preference.expect("n2", SPEC.image)
    assert preference.holding(SPEC, {}, NODES) == ["n1", "n2"]
    # What is only seen counts until an agent should have told it; where there is no room nobody waits.
    clock.now += NOTED_MS
    assert preference.holding(SPEC, {}, NODES) == ["n1"]
    full = node("n1", allocatable={**ROOM, "cpu": 100})
    assert preference.holding(SPEC, {}, [full]) == []
    assert preference.holding(SPEC, {}, [node("n1", ready="False")]) == []
