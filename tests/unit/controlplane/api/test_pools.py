"""The API of pools: one object to declare, look at, change and take back; nonsense is refused by name."""

import asyncio
from typing import Any

import pytest

from tests.support.world import OTHER_KEY, World

SPEC: dict[str, Any] = {"template": {"image": "python:3.12"}, "min_warm": 2, "max_warm": 2}


async def test_a_pool_is_declared_filled_changed_and_taken_back(plane: World) -> None:
    made = await plane.api("PUT", "/v1/pools/p", body=SPEC)
    assert made.status == 201
    assert made.json["spec"]["template"]["cpu_millicores"] == {"request": 100, "limit": 2000}
    assert (made.json["name"], made.json["trouble"], made.json["status"]["ready"]) == ("p", "", 0)
    await asyncio.sleep(5)
    told = (await plane.api("GET", "/v1/pools/p")).json
    assert told["status"] == {
        "ready": 2,
        "starting": 0,
        "outdated": 0,
        "wanted": 2,
        "claimed_per_minute": 0,
        "why": "2 are wanted: minimum and maximum are the same",
        "failures": [],
        "paused_until_ms": None,
    }
    assert (await plane.api("GET", "/v1/pools")).json == {"pools": [told]}
    text, _ = plane.deps.metrics.render(await plane.service.levels())
    assert b'rollbox_pool_sandboxes{pool="p",what="ready"} 2.0' in text
    assert (await plane.api("PUT", "/v1/pools/p", body=SPEC)).status == 200
    changed = await plane.api("PATCH", "/v1/pools/p", body={"drain": True})
    assert changed.json["spec"] == {**told["spec"], "drain": True}
    assert (await plane.api("DELETE", "/v1/pools/p")).json == {"name": "p", "removed": True}
    assert (await plane.api("DELETE", "/v1/pools/p")).json == {"name": "p", "removed": False}
    gone = await plane.api("GET", "/v1/pools/p")
    assert (gone.status, gone.json["code"]) == (404, "not_found")


@pytest.mark.parametrize(
    ("method", "path", "body", "said"),
    [
        ("PUT", "/v1/pools/p", {**SPEC, "min_warm": 3}, "min_warm 3 must not be greater than max_warm 2"),
        ("PUT", "/v1/pools/p", {**SPEC, "max_warm": 9, "auto": False}, "auto is off"),
        ("PUT", "/v1/pools/p", {**SPEC, "surge": 0}, "surge"),
        ("PUT", "/v1/pools/p", {**SPEC, "max_warm": 10_001}, "max_warm"),
        ("PUT", "/v1/pools/p", {**SPEC, "template": {"image": "a", "env": {"A": "1"}}}, "template.env is not a known"),
        ("PUT", "/v1/pools/p", {**SPEC, "warm": 3}, "warm is not a known field"),
        ("PUT", "/v1/pools/P", SPEC, "name"),
        ("PATCH", "/v1/pools/p", {}, "nothing is to be changed"),
        ("PATCH", "/v1/pools/p", {"min_warm": 7}, "min_warm 7 must not be greater than max_warm 2"),
        ("PATCH", "/v1/pools/p", {"min_warm": -1}, "min_warm"),
    ],
)
async def test_nonsense_is_refused_with_value_and_rule(
    plane: World, method: str, path: str, body: dict[str, Any], said: str
) -> None:
    if method == "PATCH":
        await plane.api("PUT", "/v1/pools/p", body=SPEC)
    answer = await plane.api(method, path, body=body)
    assert (answer.status, answer.json["code"]) == (400, "invalid_argument")
    assert said in answer.json["detail"]


async def test_everybody_may_look_and_only_operators_change(plane: World) -> None:
    assert (await plane.api("GET", "/v1/pools", key=OTHER_KEY)).status == 200
    for method, body in (("PUT", SPEC), ("PATCH", {"drain": True}), ("DELETE", None)):
        answer = await plane.api(method, "/v1/pools/p", body=body, key=OTHER_KEY)
        assert (answer.status, answer.json["code"]) == (403, "permission_denied")
