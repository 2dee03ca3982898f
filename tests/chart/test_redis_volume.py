"""Whether the chart's own Redis has a volume: decided once, by what the cluster offers, and kept by every upgrade."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.support.helm import ChartError, Manifest, named, notes, of_kind, render
from tests.support.helm_cluster import helm_cluster

DEFAULT: Final = {
    "kind": "StorageClass",
    "metadata": {"name": "disk", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
}
OTHER: Final = {"kind": "StorageClass", "metadata": {"name": "slow", "annotations": {"a": "b"}}}
PLAIN: Final = {"kind": "StorageClass", "metadata": {"name": "bare"}}
WARNING: Final = "WARNING: Redis has no volume"


def redis(*claims: dict[str, Any]) -> dict[str, Any]:
    """The StatefulSet of a release that is there already."""
    spec = {"volumeClaimTemplates": list(claims)} if claims else {}
    return {"kind": "StatefulSet", "metadata": {"name": "rollbox-redis", "namespace": "rollbox"}, "spec": spec}


CLAIM: Final = {"metadata": {"name": "data"}}


def has_volume(manifests: list[Manifest]) -> bool:
    """Whether Redis has one; either way there is one place for its file."""
    (own,) = of_kind(manifests, "StatefulSet")
    volumes = [one["name"] for one in own["spec"]["template"]["spec"]["volumes"]]
    claims = [one["metadata"]["name"] for one in own["spec"].get("volumeClaimTemplates", ())]
    assert sorted(volumes + claims) == ["config", "data"]
    return claims == ["data"]


@pytest.mark.parametrize(
    ("there", "settings", "volume"),
    [
        # The first install: what the cluster offers, unless it is said.
        ((DEFAULT, OTHER), (), True),
        ((OTHER, PLAIN), (), False),
        ((), (), False),
        ((OTHER,), ("redis.persistence.storageClass=slow",), True),
        ((DEFAULT,), ("redis.persistence.enabled=false",), False),
        ((), ("redis.persistence.enabled=true",), True),
        # An upgrade: what is there, whatever the cluster offers now.
        ((redis(CLAIM), OTHER), (), True),
        ((redis(), DEFAULT), (), False),
        ((redis(), DEFAULT), ("redis.persistence.storageClass=disk",), False),
        ((redis(CLAIM),), ("redis.persistence.enabled=true",), True),
        ((redis(), DEFAULT), ("redis.persistence.enabled=false",), False),
    ],
)
def test_with_the_cluster_at_hand(there: tuple[dict[str, Any], ...], settings: tuple[str, ...], volume: bool) -> None:
    with helm_cluster(*there) as cluster:
        assert has_volume(render(*settings, cluster=cluster)) is volume


@pytest.mark.parametrize(("claims", "wish"), [((CLAIM,), "false"), ((), "true")])
def test_an_upgrade_that_would_change_it_is_refused_before_anything_is_changed(
    claims: tuple[dict[str, Any], ...], wish: str
) -> None:
    with helm_cluster(redis(*claims), DEFAULT) as cluster, pytest.raises(ChartError) as refused:
        render(f"redis.persistence.enabled={wish}", cluster=cluster)
    text = str(refused.value)
    assert f"redis.persistence.enabled is {wish}, but the Redis of this release was installed with" in text
    assert "set it to auto, which keeps what is there" in text
    assert "kubectl -n rollbox delete statefulset rollbox-redis" in text


@pytest.mark.parametrize(("wish", "volume"), [("auto", False), ("true", True), ("false", False)])
def test_without_the_cluster_every_rendering_is_the_same(wish: str, volume: bool) -> None:
    assert has_volume(render(f"redis.persistence.enabled={wish}")) is volume


def test_a_redis_of_another_release_decides_nothing() -> None:
    other = {**redis(CLAIM), "metadata": {"name": "rollbox-redis", "namespace": "elsewhere"}}
    with helm_cluster(other, OTHER) as cluster:
        assert not has_volume(render(cluster=cluster))


def test_an_external_redis_has_no_volume_here_and_the_chart_looks_for_none() -> None:
    settings = ("redis.url=redis://elsewhere:6379/1", "redis.persistence.enabled=true")
    with helm_cluster(redis(), DEFAULT) as cluster:
        assert not of_kind(render(*settings, cluster=cluster), "StatefulSet")
        assert WARNING not in notes(*settings, cluster=cluster)


def test_the_notes_say_when_there_is_no_volume_that_nobody_has_decided_on() -> None:
    with helm_cluster(DEFAULT) as cluster:
        assert WARNING not in notes(cluster=cluster)
    assert WARNING in notes()
    assert WARNING not in notes("redis.persistence.enabled=false")


def test_one_redis_has_no_disruption_budget() -> None:
    manifests = render()
    assert not [one for one in of_kind(manifests, "PodDisruptionBudget") if "redis" in one["metadata"]["name"]]
    assert named(manifests, "StatefulSet", "rollbox-redis")["spec"]["replicas"] == 1
