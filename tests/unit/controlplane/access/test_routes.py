"""Every route of the API has a scope, and is found by its path."""

import re
from pathlib import Path

import pytest
import yaml

from controlplane.access import EVERY, IN_SETTINGS, ROUTES, SCOPES, Caller, Scope, gives, route_of, scope_of
from controlplane.errors import Problem
from tests.support.api_routes import routes

ROOT = Path(__file__).parents[4]


def test_no_route_is_left_out_and_none_is_made_up() -> None:
    assert set(ROUTES) == routes()


def test_the_routes_are_those_of_the_openapi_document_and_the_hidden_ones() -> None:
    document = yaml.safe_load((ROOT / "contract/openapi/controlplane.yaml").read_text())["paths"]
    told = {(method.upper(), path) for path, operations in document.items() for method in operations}
    assert routes(hidden=False) == told
    assert {path for _, path in routes() - told if "console" not in path} == {"/v1/sandboxes/{sandbox_id}/unbound"}


@pytest.mark.parametrize(("method", "template"), sorted(ROUTES))
def test_a_request_needs_the_scope_of_its_route(method: str, template: str) -> None:
    path = re.sub(r"\{\w+\}", "some-name", template)
    assert scope_of(route_of(method, path)) == ROUTES[method, template]


@pytest.mark.parametrize("name", ["team/name:1", "registry.example/a/b@sha256:0", "config", "commits"])
def test_names_of_images_may_have_slashes(name: str) -> None:
    assert scope_of(route_of("GET", f"/v1/images/config/{name}")) == "read"
    assert scope_of(route_of("DELETE", f"/v1/images/commits/{name}")) == "images"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/nothing"),
        ("POST", "/v1/sandboxes/sb-1"),
        ("GET", "/v1/sandboxes/sb-1/token"),
        ("GET", "/v1/sandboxes/"),
        ("get", "/v1/info"),
        ("GET", "//v1/info"),
    ],
)
def test_what_is_no_route_needs_most(method: str, path: str) -> None:
    wanted: Scope = "read" if path == "/v1/sandboxes/" else "operator"
    assert scope_of(route_of(method, path)) == wanted


def test_nothing_that_changes_or_opens_anything_is_open_to_a_key_that_reads() -> None:
    reading = {(method, path) for (method, path), scope in ROUTES.items() if scope == "read"}
    assert {method for method, _ in reading} == {"GET", "POST"}
    # It reckons, and starts nothing.
    assert [path for method, path in reading if method == "POST"] == ["/v1/preflight"]
    # A group is told with tokens of its sandboxes.
    assert ROUTES["GET", "/v1/groups/{name}"] == "run"


def caller(*scopes: Scope, owner: str = "alice", expires_at_ms: int | None = None) -> Caller:
    return Caller(owner, "key-000000000000", frozenset(scopes), expires_at_ms)


def test_every_key_reads_and_operators_manage_pools_and_keys() -> None:
    for scope in SCOPES:
        assert caller(scope).may("read")
        assert caller(scope).may(scope)
    assert [one for one in SCOPES if caller("operator").may(one)] == ["read", "pools", "keys", "operator"]
    assert [one for one in SCOPES if Caller("alice", IN_SETTINGS, EVERY).may(one)] == [
        "read",
        "run",
        "images",
        "egress",
        "keys",
    ]


def test_who_lacks_a_scope_is_told_which_one_and_what_for() -> None:
    with pytest.raises(Problem, match=r"has the scopes read, and this needs run \(create, use") as refused:
        caller("read").need("run")
    assert refused.value.code == "permission_denied"
    assert (refused.value.details["scope"], refused.value.details["reason"]) == ("run", "scope")
    assert "rollbox key create" in refused.value.hint


def test_a_key_gives_nothing_that_it_has_not() -> None:
    gives(caller("keys", "run"), "alice", ["run", "read"], None)
    gives(caller("operator"), "bob", ["run", "images"], None)
    gives(caller("keys", expires_at_ms=10), "alice", ["keys"], 10)
    refused_ones: tuple[tuple[Caller, str, tuple[Scope, ...], int | None], ...] = (
        (caller("keys", "run"), "alice", ("images",), None),
        (caller("keys"), "alice", ("operator",), None),
        (caller("keys", "pools"), "bob", ("read",), None),
        (caller("keys", expires_at_ms=10), "alice", ("keys",), 11),
        (caller("operator", expires_at_ms=10), "alice", ("keys",), None),
    )
    for maker, owner, scopes, expires_at_ms in refused_ones:
        with pytest.raises(Problem) as refused:
            gives(maker, owner, scopes, expires_at_ms)
        assert refused.value.code == "permission_denied"
