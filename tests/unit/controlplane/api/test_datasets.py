"""Data sets and scratch of creates, groups and pools, on a played cluster: who gets what, and who does not."""

import asyncio
from typing import Any

import pytest

from controlplane.cluster import DatasetAt, ScratchAt
from controlplane.lifecycle import Options
from controlplane.model.dataset import DatasetSpec
from tests.support.fake_cluster import FakeCluster
from tests.support.world import KEY, OTHER_KEY, World, world

MINI, PAPERS = {"folder": "/srv/mini"}, {"folder": "/srv/papers", "owners": ["alice"]}


def create(**mounts: dict[str, Any]) -> dict[str, Any]:
    return {"image": "python:3.12", "mounts": {f"/{path}": mount for path, mount in mounts.items()}}


async def declared(plane: World, **datasets: dict[str, Any]) -> None:
    for name, body in datasets.items():
        assert (await plane.api("PUT", f"/v1/datasets/{name}", body=body)).status == 201


def keys(cluster: FakeCluster, *ids: str) -> list[str]:
    """What names the first scratch of each sandbox."""
    bound = [next(one for one in cluster.held[sandbox].boot.mounts if isinstance(one, ScratchAt)) for sandbox in ids]
    return [one.key for one in bound]


async def test_a_data_set_is_declared_mounted_and_taken_back(plane: World) -> None:
    await declared(plane, mini=MINI, papers=PAPERS)
    assert (await plane.api("PUT", "/v1/datasets/mini", body=MINI)).status == 200
    told = {"name": "papers", "source": "folder /srv/papers", "owners": ["alice"], "trouble": ""}
    assert (await plane.api("GET", "/v1/datasets/papers")).json == told
    made = await plane.api("POST", "/v1/sandboxes", body=create(data={"dataset": "papers"}))
    assert (made.status, made.json["mounts"]) == (201, {"/data": {"dataset": "papers"}})
    spec = DatasetSpec(folder="/srv/papers", owners=["alice"])
    assert plane.cluster.held[made.json["id"]].boot.mounts == [DatasetAt("/data", "papers", spec)]
    assert (await plane.api("GET", f"/v1/sandboxes/{made.json['id']}")).json["mounts"] == made.json["mounts"]
    assert (await plane.api("DELETE", "/v1/datasets/papers")).json == {"name": "papers", "removed": True}
    assert (await plane.api("DELETE", "/v1/datasets/papers")).json == {"name": "papers", "removed": False}
    gone = await plane.api("POST", "/v1/sandboxes", body=create(data={"dataset": "papers"}))
    assert (gone.status, gone.json["code"]) == (404, "not_found")


async def test_a_neighbour_sees_and_mounts_only_what_is_for_it(plane: World) -> None:
    await declared(plane, mini=MINI, papers=PAPERS)
    listed = (await plane.api("GET", "/v1/datasets", key=OTHER_KEY)).json["datasets"]
    # Where files are is the operators' business.
    assert listed == [{"name": "mini", "source": "", "owners": [], "trouble": ""}]
    refused = await plane.api("POST", "/v1/sandboxes", key=OTHER_KEY, body=create(data={"dataset": "papers"}))
    assert (refused.status, refused.json["code"], refused.json["details"]["dataset"]) == (
        403,
        "permission_denied",
        "papers",
    )
    assert (await plane.api("GET", "/v1/datasets/papers", key=OTHER_KEY)).status == 403
    unknown = await plane.api("POST", "/v1/sandboxes", key=OTHER_KEY, body=create(data={"dataset": "paper"}))
    # The name of another owner's data set is not proposed.
    assert unknown.json["detail"] == "there is no data set paper; `rollbox dataset list` shows them"
    assert (await plane.api("PUT", "/v1/datasets/own", key=OTHER_KEY, body=MINI)).status == 403
    assert (await plane.api("DELETE", "/v1/datasets/mini", key=OTHER_KEY)).status == 403
    assert plane.cluster.started == []


async def test_a_name_that_is_nearly_one_is_asked_about(plane: World) -> None:
    await declared(plane, imagenet=MINI)
    unknown = await plane.api("POST", "/v1/sandboxes", body=create(data={"dataset": "imagenett"}))
    assert (unknown.status, unknown.json["detail"]) == (
        404,
        "there is no data set imagenett: did you mean imagenet?",
    )
    forecast = (await plane.api("POST", "/v1/preflight", body={"sandbox": unknown_of("imagenett"), "count": 2})).json
    assert [one["code"] for one in forecast["blockers"]] == ["not_found"]


def unknown_of(name: str) -> dict[str, Any]:
    return create(data={"dataset": name})


async def test_a_data_set_whose_files_are_gone_is_the_installations_fault(plane: World) -> None:
    await declared(plane, mini=MINI)
    plane.cluster.mounts.troubles["/srv/mini"] = "there is no folder /srv/mini"
    refused = await plane.api("POST", "/v1/sandboxes", body=create(data={"dataset": "mini"}))
    assert (refused.status, refused.json["code"], refused.json["fault"]) == (503, "dataset_unavailable", "platform")
    assert "/data" in refused.json["detail"]
    assert "there is no folder /srv/mini" in refused.json["detail"]
    assert (await plane.api("GET", "/v1/datasets")).json["datasets"][0]["trouble"] == "there is no folder /srv/mini"
    assert plane.cluster.started == []


async def test_a_create_that_is_repeated_finds_its_sandbox_whatever_became_of_the_data_set(plane: World) -> None:
    await declared(plane, mini=MINI)
    body, key = create(data={"dataset": "mini"}), {"idempotency-key": "k"}
    first = (await plane.api("POST", "/v1/sandboxes", body=body, headers=key)).json
    plane.cluster.mounts.troubles["/srv/mini"] = "there is no folder /srv/mini"
    again = await plane.api("POST", "/v1/sandboxes", body=body, headers=key)
    assert (again.status, again.json["id"]) == (200, first["id"])
    assert (await plane.api("POST", "/v1/sandboxes", body=body)).status == 503


async def test_what_this_backend_cannot_mount_is_refused_when_it_is_declared(plane: World) -> None:
    refused = await plane.api("PUT", "/v1/datasets/image", body={"image": "data:1"})
    assert (refused.status, refused.json["code"]) == (422, "unsupported")
    assert (await plane.api("GET", "/v1/datasets")).json == {"datasets": []}


async def test_a_backend_without_mounts_says_so() -> None:
    class Without(FakeCluster):
        mounts = None  # type: ignore[assignment]

        def __post_init__(self) -> None:
            super().__post_init__()
            vars(self).pop("mounts", None)

    async with world(Without()) as plane:
        refused = await plane.api("POST", "/v1/sandboxes", body=create(cache={"scratch": "s"}))
        assert (refused.status, refused.json["code"]) == (422, "unsupported")


async def test_data_sets_of_the_settings_are_nobodys_to_change() -> None:
    options = Options(datasets={"mini": DatasetSpec(folder="/srv/mini")})
    async with world(options=options) as plane:
        assert [one["name"] for one in (await plane.api("GET", "/v1/datasets")).json["datasets"]] == ["mini"]
        for method in ("PUT", "DELETE"):
            answer = await plane.api(method, "/v1/datasets/mini", body=PAPERS if method == "PUT" else None)
            assert (answer.status, answer.json["code"]) == (409, "conflict")
        assert (await plane.api("POST", "/v1/sandboxes", body=create(data={"dataset": "mini"}))).status == 201


async def test_a_scratch_is_shared_by_one_owner_and_one_group(plane: World) -> None:
    cluster, body = plane.cluster, create(cache={"scratch": "cache"})

    async def group(name: str, key: str = KEY) -> list[str]:
        wish = {"count": 2, "sandbox": body}
        answer = await plane.api("PUT", f"/v1/groups/{name}", body=wish, key=key)
        return [one["sandbox"]["id"] for one in answer.json["members"]]

    alone = [(await plane.api("POST", "/v1/sandboxes", body=body)).json["id"] for _ in range(2)]
    groups = [alone, await group("g"), await group("h"), await group("g", OTHER_KEY)]
    shared = [keys(cluster, *ids) for ids in groups]
    assert all(len({*of_group}) == 1 for of_group in shared)
    assert len({of_group[0] for of_group in shared}) == len(groups)


async def test_a_scratch_has_one_size(plane: World) -> None:
    body = create(cache={"scratch": "cache", "size_bytes": 1 << 21})
    assert (await plane.api("POST", "/v1/sandboxes", body=body)).status == 201
    other = await plane.api("POST", "/v1/sandboxes", body=create(cache={"scratch": "cache"}))
    assert (other.status, other.json["code"]) == (409, "conflict")


async def test_a_pool_with_the_same_mounts_serves_a_create_and_another_says_why_not(plane: World) -> None:
    await declared(plane, mini=MINI, papers=PAPERS)
    pool = {"template": create(data={"dataset": "mini"}), "min_warm": 1, "max_warm": 1}
    assert (await plane.api("PUT", "/v1/pools/p", body=pool)).status == 201
    await asyncio.sleep(5)
    warm = (await plane.api("POST", "/v1/sandboxes", body=create(data={"dataset": "mini"}))).json
    assert (warm["source"], warm["mounts"]) == ("warm", {"/data": {"dataset": "mini"}})
    cold = (await plane.api("POST", "/v1/sandboxes", body=create(data={"dataset": "papers"}))).json
    assert (cold["source"], cold["cold_reason"]) == ("cold", "pool p keeps python:3.12 with other mounts")


@pytest.mark.parametrize(
    ("mount", "status", "said"),
    [
        ({"dataset": "none"}, 404, "there is no data set none"),
        ({"scratch": "s"}, 400, "a scratch is an owner's"),
    ],
)
async def test_a_pool_whose_mounts_nobody_could_have_is_refused(
    plane: World, mount: dict[str, Any], status: int, said: str
) -> None:
    refused = await plane.api("PUT", "/v1/pools/p", body={"template": create(data=mount), "max_warm": 1})
    assert refused.status == status
    assert said in refused.json["detail"]
