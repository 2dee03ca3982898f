"""The HTTP API of network policies: what is answered, and what is refused in which words."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from controlplane.egress import OF_REPLICAS, EgressAttempt, EgressOptions
from controlplane.lifecycle import Options
from controlplane.wire import egress_pb2 as wire
from tests.support.egress_replica import EgressReplica, egress_replica
from tests.support.world import OTHER_KEY, OWNER, SPEC, World, world


@pytest.fixture
async def plane() -> AsyncIterator[World]:
    async with world(options=Options(egress=EgressOptions(3128))) as made:
        yield made


@pytest.fixture
async def replica(plane: World) -> AsyncIterator[EgressReplica]:
    async with egress_replica(plane, cut=2) as connected:
        yield connected


@pytest.fixture
async def path(plane: World, replica: EgressReplica) -> str:
    del replica
    return f"/v1/sandboxes/{(await plane.create(OWNER, SPEC)).sandbox.id}"


async def test_a_sandbox_is_offline_until_it_is_switched(plane: World, path: str) -> None:
    offline = {
        "policy": "offline",
        "revision": 0,
        "applied": True,
        "cut": 0,
        "link": {"state": "none", "detail": ""},
        "rules": {"mode": "offline", "allow": [], "deny": [], "limits": {}, "until": ""},
    }
    answer = await plane.api("GET", f"{path}/egress")
    assert (answer.status, answer.json) == (200, offline)
    policy = {"mode": "allow", "allow": [{"host": "trainer.example", "ports": [8443], "name": "trainer"}]}
    put = await plane.api("PUT", f"{path}/egress", body={"policy": policy})
    assert put.status == 200
    assert put.json == (await plane.api("GET", f"{path}/egress")).json
    assert put.json["revision"] > 0
    assert {**put.json, "revision": 0} == {
        "policy": "custom",
        "revision": 0,
        "applied": True,
        "cut": 2,
        "link": {"state": "up", "detail": ""},
        "rules": {
            "mode": "rules",
            "allow": [{"id": "custom/trainer", "host": "trainer.example", "cidr": None, "ports": [[8443, 8443]]}],
            "deny": [],
            "limits": {},
            "until": "",
        },
    }
    assert (await plane.api("GET", path)).json["egress"] == "custom"


async def test_the_replica_that_a_sandbox_has_moved_away_from_says_nothing_of_its_link(
    plane: World, replica: EgressReplica, path: str
) -> None:
    assert (await plane.api("PUT", f"{path}/egress", body={"policy": "packages"})).json["applied"]
    late = wire.Linked(sandbox_id=path.rpartition("/")[2], up=False, detail="does not serve it any more")
    await replica.egress.reports.take(wire.EgressReport(egress_id="another", links=[late]))
    assert (await plane.api("GET", f"{path}/egress")).json["link"] == {"state": "up", "detail": ""}
    assert (await plane.api("PUT", f"{path}/egress", body={"policy": "swe-eval"})).json["applied"]
    await replica.link(late.sandbox_id, up=False, detail="gone")
    assert (await plane.api("GET", f"{path}/egress")).json["link"] == {"state": "down", "detail": "gone"}


async def test_a_create_takes_a_preset_or_a_policy_past_fastapi_and_through_it(
    plane: World, replica: EgressReplica
) -> None:
    for wish, name in (("packages", "packages"), ({"mode": "open"}, "custom"), (None, "offline")):
        for headers in ({}, {"content-type": "application/json; charset=utf-8"}):
            body = {"image": SPEC.image, "egress": wish}
            answer = await plane.api("POST", "/v1/sandboxes", body=body, headers=headers)
            assert (answer.status, answer.json["egress"]) == (201, name), answer.json
    assert len(replica.serves) == 4


async def test_a_group_has_its_policy_in_every_member(plane: World, replica: EgressReplica) -> None:
    body = {"count": 3, "sandbox": {"image": SPEC.image, "egress": "packages"}}
    answer = await plane.api("PUT", "/v1/groups/g", body=body)
    assert [one["sandbox"]["egress"] for one in answer.json["members"]] == ["packages"] * 3
    assert len(replica.serves) == 3


@pytest.mark.parametrize(
    ("policy", "code", "words"),
    [
        ("nothing", "not_found", "no egress preset nothing"),
        ("pakages", "not_found", "no egress preset pakages: did you mean packages?"),
        ({"mode": "allow"}, "invalid_argument", "use mode none"),
        ({"mode": "allow", "include": ["nothing"]}, "invalid_argument", "no preset nothing"),
        ({"mode": "allow", "allow": ["a.example"], "more": 1}, "invalid_argument", "policy.more is not a known field"),
        ({"mode": "allow", "allow": ["http://x"]}, "invalid_argument", "policy.allow.0: host 'http://x' is not a host"),
        (
            {"mode": "closed"},
            "invalid_argument",
            "policy.mode: must be 'none', 'allow', 'deny' or 'open', got 'closed'",
        ),
        ({}, "invalid_argument", "policy.mode is missing"),
        (5, "invalid_argument", "policy: must be an object, got 5"),
        (None, "invalid_argument", "policy"),
    ],
)
async def test_what_is_refused(plane: World, path: str, policy: object, code: str, words: str) -> None:
    answer = await plane.api("PUT", f"{path}/egress", body={"policy": policy})
    assert answer.code == code
    assert words in answer.json["detail"]
    assert (await plane.api("GET", f"{path}/egress")).json["policy"] == "offline"


async def test_it_is_the_owners_alone(plane: World, path: str) -> None:
    for method, body in (("GET", None), ("PUT", {"policy": "offline"})):
        assert (await plane.api(method, f"{path}/egress", body=body, key=OTHER_KEY)).code == "sandbox_not_found"


async def test_what_was_attempted_is_kept_also_after_the_end(plane: World, replica: EgressReplica, path: str) -> None:
    sandbox_id = path.rpartition("/")[2]
    assert (await plane.api("GET", f"{path}/egress/log")).json == {"attempts": []}
    told = wire.Attempt(
        sandbox_id=sandbox_id,
        at_ms=5,
        host="git\x1b[31m.example",
        port=443,
        verdict=wire.DENIED_NAME,
        policy="swe-eval",
        rule="swe-eval/github",
        protocol="connect",
        count=2,
    )
    cut = wire.Attempt(sandbox_id=sandbox_id, at_ms=6, host="a.example", port=80, verdict=wire.CUT, sent_bytes=3)
    odd = [wire.Attempt(sandbox_id="../x", verdict=wire.CUT), wire.Attempt(sandbox_id=sandbox_id)]
    await replica.report(attempts=[told, *odd])
    await plane.service.delete(OWNER, sandbox_id)
    await replica.report(attempts=[cut])
    first, last = (await plane.api("GET", f"{path}/egress/log")).json["attempts"]
    assert first == {
        "at_ms": 5,
        "host": "git?[31m.example",
        "port": 443,
        "address": "",
        "verdict": "denied_name",
        "policy": "swe-eval",
        "rule": "swe-eval/github",
        "protocol": "connect",
        "sent_bytes": 0,
        "received_bytes": 0,
        "duration_ms": 0,
        "count": 2,
    }
    assert (last["verdict"], last["count"], last["sent_bytes"]) == ("cut", 1, 3)
    newest = await plane.api("GET", f"{path}/egress/log", query={"most": "1"})
    assert newest.json == {"attempts": [last]}
    assert (await plane.api("GET", f"{path}/egress/log", key=OTHER_KEY)).code == "sandbox_not_found"


async def test_what_a_sandbox_refuses_itself_is_in_its_log_while_it_runs(
    plane: World, replica: EgressReplica, path: str
) -> None:
    sandbox_id = path.rpartition("/")[2]
    address = (await plane.service.get(OWNER, sandbox_id)).address or ""
    about = {"port": 443, "address": "", "policy": "offline", "rule": "", "protocol": "connect"}
    refused = [
        EgressAttempt.made(at_ms=at_ms, host=host, verdict="denied_name", **about)
        for at_ms, host in ((4, "github.com"), (6, "pypi.org"))
    ]
    plane.sidecars.refused_there[address] = refused
    told = wire.Attempt(sandbox_id=sandbox_id, at_ms=5, host="a.example", port=80, verdict=wire.CUT)
    await replica.report(attempts=[told])

    async def hosts(most: str = "500") -> list[str]:
        answer = await plane.api("GET", f"{path}/egress/log", query={"most": most})
        return [one["host"] for one in answer.json["attempts"]]

    assert (await hosts(), await hosts("2")) == (["github.com", "a.example", "pypi.org"], ["a.example", "pypi.org"])
    plane.sidecars.dead.add(address)
    assert await hosts() == ["a.example"]
    plane.sidecars.dead.clear()
    await plane.service.delete(OWNER, sandbox_id)
    assert await hosts() == ["a.example"]


def test_every_verdict_of_the_wire_has_its_word() -> None:
    known = [name.lower() for name, number in sorted(wire.Verdict.items(), key=lambda one: one[1]) if number]
    assert known == list(OF_REPLICAS)


async def test_an_owner_declares_presets_of_its_own(plane: World, path: str, replica: EgressReplica) -> None:
    mine = {"mode": "allow", "include": ["packages"], "allow": [{"host": "trainer.example", "ports": [8443]}]}
    made = await plane.api("PUT", "/v1/egress/presets/mine", body=mine)
    assert (made.status, made.json["source"], made.json["policy"]["include"]) == (201, "own", ["packages"])
    listed = (await plane.api("GET", "/v1/egress/presets")).json["presets"]
    assert [(one["name"], one["source"]) for one in listed] == [
        ("mine", "own"),
        ("offline", "installation"),
        ("packages", "installation"),
        ("swe-eval", "installation"),
    ]
    put = await plane.api("PUT", f"{path}/egress", body={"policy": "mine"})
    assert (put.json["policy"], put.json["rules"]["allow"][0]["id"]) == ("mine", "mine/allow 1")
    changed = await plane.api("PUT", "/v1/egress/presets/mine", body={"mode": "open"})
    assert changed.status == 200
    assert (await plane.api("GET", f"{path}/egress")).json["rules"] == put.json["rules"], "it keeps what it got"
    others = await plane.api("GET", "/v1/egress/presets", key=OTHER_KEY)
    assert "mine" not in [one["name"] for one in others.json["presets"]]
    assert (await plane.api("GET", "/v1/egress/presets/mine", key=OTHER_KEY)).code == "not_found"
    removed = await plane.api("DELETE", "/v1/egress/presets/mine")
    assert removed.json == {"name": "mine", "removed": True}
    assert (await plane.api("DELETE", "/v1/egress/presets/mine")).json["removed"] is False
    assert (await plane.api("PUT", f"{path}/egress", body={"policy": "mine"})).code == "not_found"
    assert replica.policy(path.rpartition("/")[2]).name == "mine"


@pytest.mark.parametrize(
    ("name", "body", "code"),
    [
        ("packages", {"mode": "open"}, "conflict"),
        ("custom", {"mode": "open"}, "conflict"),
        ("Mine", {"mode": "open"}, "invalid_argument"),
        ("mine", {"mode": "allow"}, "invalid_argument"),
        ("mine", {"mode": "allow", "include": ["nothing"]}, "invalid_argument"),
        ("mine", {"mode": "allow", "include": ["mine"]}, "invalid_argument"),
    ],
)
async def test_presets_that_are_refused(plane: World, name: str, body: dict[str, object], code: str) -> None:
    assert (await plane.api("PUT", f"/v1/egress/presets/{name}", body=body)).code == code


async def test_operators_declare_presets_for_everybody_as_objects(plane: World, path: str) -> None:
    put = plane.deps.documents.put
    await put("egress", "web", {"mode": "open"})
    await put("egress", "packages", {"mode": "allow", "allow": [{"host": "index.inside.example"}]})
    await put("egress", "odd", {"mode": "allow"})
    await put("egress", "offline", {"mode": "open"})
    await put("egress", "for-bob", {"owner": "bob", "name": "web", "mode": "none"})
    await asyncio.sleep(0.1)
    listed = (await plane.api("GET", "/v1/egress/presets")).json["presets"]
    assert {one["name"]: one["source"] for one in listed} == {
        "offline": "installation",
        "packages": "operators",
        "swe-eval": "installation",
        "web": "operators",
    }
    switched = await plane.api("PUT", f"{path}/egress", body={"policy": "packages"})
    assert [one["host"] for one in switched.json["rules"]["allow"]] == ["index.inside.example"]
    bobs = (await plane.api("GET", "/v1/egress/presets/web", key=OTHER_KEY)).json
    assert (bobs["source"], bobs["policy"]["mode"]) == ("own", "none")
    assert (await plane.api("PUT", "/v1/egress/presets/web", body={"mode": "open"})).code == "conflict"
    for name, words in (("odd", "use mode none"), ("offline", "has its meaning")):
        document = await plane.deps.documents.get("egress", name)
        assert document is not None
        assert words in str(document.status["invalid"])


async def test_where_egress_is_not_installed_nothing_of_it_answers() -> None:
    async with world() as plane:
        for method, where, body in (
            ("GET", "/v1/egress/presets", None),
            ("GET", "/v1/egress/presets/packages", None),
            ("PUT", "/v1/egress/presets/mine", {"mode": "open"}),
            ("DELETE", "/v1/egress/presets/mine", None),
            ("GET", "/v1/sandboxes/sb-1/egress", None),
            ("GET", "/v1/sandboxes/sb-1/egress/log", None),
            ("PUT", "/v1/sandboxes/sb-1/egress", {"policy": "offline"}),
        ):
            assert (await plane.api(method, where, body=body)).code == "unsupported", where


@pytest.mark.parametrize(
    ("wish", "code"), [("packages", None), ("nothing", "not_found"), (None, None), ({"mode": "open"}, None)]
)
async def test_a_preflight_says_what_a_create_would(plane: World, wish: object, code: str | None) -> None:
    body = {"count": 1, "sandbox": {"image": SPEC.image, "egress": wish}}
    told = (await plane.api("POST", "/v1/preflight", body=body)).json
    assert [one["code"] for one in told["blockers"]] == ([] if code is None else [code])
    assert told["fits"] is (code is None)
