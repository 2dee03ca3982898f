"""The HTTP API of ports: where one is reached, by whom, and what is refused."""

from typing import Any

import pytest

from controlplane.api.app import create_app
from controlplane.api.auth import ApiKeys
from controlplane.api.context import Context
from tests.support.asgi import Caller
from tests.support.world import KEY, OTHER_KEY, OWNER, SPEC, World


@pytest.fixture
async def sandbox_id(plane: World) -> str:
    return (await plane.create(OWNER, SPEC)).sandbox.id


async def test_a_port_is_private_until_it_is_made_public_and_again_when_taken_back(
    plane: World, sandbox_id: str
) -> None:
    path = f"/v1/sandboxes/{sandbox_id}/ports/8000"
    private = {"port": 8000, "visibility": "private", "url": f"{path}/http/", "host_url": None}
    public = {**private, "visibility": "public"}
    for method, body, expected, listed in (
        ("POST", {}, private, []),
        ("POST", {"visibility": "public"}, public, [8000]),
        ("POST", {"visibility": "public"}, public, [8000]),
        ("DELETE", None, private, []),
        ("DELETE", None, private, []),
        ("POST", {"visibility": "public"}, public, [8000]),
        ("POST", {"visibility": "private"}, private, []),
    ):
        answer = await plane.api(method, path, body=body)
        assert (answer.status, answer.json) == (200, expected)
        assert (await plane.api("GET", f"/v1/sandboxes/{sandbox_id}")).json["public_ports"] == listed


async def test_a_host_name_is_told_where_there_is_a_domain(plane: World, sandbox_id: str) -> None:
    keys = ApiKeys({KEY: OWNER}, frozenset(), plane.service.keys, plane.deps.key, plane.deps.clock)
    context = Context(
        plane.service,
        plane.deps,
        keys,
        {},
        "ports.example.com",
    )
    answer = await Caller(create_app(context), KEY)("POST", f"/v1/sandboxes/{sandbox_id}/ports/80", body={})
    assert answer.json["host_url"] == f"//80-{sandbox_id}.ports.example.com/"


@pytest.mark.parametrize("port", ["0", "65536", "-1", "x", "1.5", "99999999999999999999"])
async def test_what_is_no_port_is_refused(plane: World, sandbox_id: str, port: str) -> None:
    for method, body in (("POST", {}), ("DELETE", None)):
        answer = await plane.api(method, f"/v1/sandboxes/{sandbox_id}/ports/{port}", body=body)
        assert (answer.status, answer.code) == (400, "invalid_argument")


@pytest.mark.parametrize("body", [None, [], {"visibility": "secret"}, {"public": True}])
async def test_a_bad_wish_is_refused(plane: World, sandbox_id: str, body: Any) -> None:
    answer = await plane.api("POST", f"/v1/sandboxes/{sandbox_id}/ports/80", body=body)
    assert answer.code == "invalid_argument"


async def test_another_owners_ports_stay_as_they_are(plane: World, sandbox_id: str) -> None:
    path = f"/v1/sandboxes/{sandbox_id}/ports/80"
    for method, body in (("POST", {"visibility": "public"}), ("DELETE", None)):
        assert (await plane.api(method, path, body=body, key=OTHER_KEY)).code == "sandbox_not_found"
        assert (await plane.api(method, path, body=body, headers={"authorization": ""})).code == "unauthenticated"
    assert (await plane.service.get(OWNER, sandbox_id)).public_ports == ()
