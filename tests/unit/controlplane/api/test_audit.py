"""Audit entries of calls: which are recorded, with what, and that nothing secret is in them."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from controlplane.access import ROUTES, AuditOptions, Route
from controlplane.lifecycle import Options
from controlplane.lifecycle.audit import AuditEntry, AuditFile, AuditQuery
from controlplane.lifecycle.audit import trail as trails
from controlplane.lifecycle.audit.entry import MOST_CHARS, MOST_NAMES, names_of
from controlplane.lifecycle.audit.trail import PAUSE_S
from controlplane.store import MemoryStore
from tests.support.virtual_time import EPOCH_MS, VirtualClock
from tests.support.world import OTHER_KEY, World, world

CREATE = {"image": "python:3.12", "labels": {"of": "a-secret"}}
SEEN = {"rollbox-client-address": "10.1.2.3", "x-forwarded-for": "9.9.9.9", "x-request-id": "req-mine"}


@pytest.fixture
async def audited() -> Any:
    async with world(options=Options(audit=AuditOptions(kept=1000))) as plane:
        yield plane


async def told(plane: World, **query: str) -> list[dict[str, Any]]:
    await asyncio.sleep(2 * PAUSE_S)
    answer = await plane.api("GET", "/v1/audit", query=query)
    assert answer.status == 200, answer
    found: list[dict[str, Any]] = answer.json["entries"]
    return found


async def test_a_call_is_recorded_with_its_key_address_and_outcome(audited: World) -> None:
    made = (await audited.api("POST", "/v1/sandboxes", body=CREATE, headers=SEEN)).json["id"]
    await audited.api("DELETE", f"/v1/sandboxes/{made}", key=OTHER_KEY)
    await audited.api("DELETE", f"/v1/sandboxes/{made}")
    create, foreign, delete = await told(audited)
    assert create == {
        "at_ms": EPOCH_MS,
        "took_ms": create["took_ms"],
        "request_id": "req-mine",
        "owner": "alice",
        "key_id": "settings",
        "address": "10.1.2.3",
        "forwarded_for": "9.9.9.9",
        "action": "POST /v1/sandboxes",
        "names": [made],
        "status": 201,
        "code": "",
    }
    outcome = [(one["owner"], one["names"], one["status"], one["code"]) for one in (foreign, delete)]
    assert outcome == [("bob", [made], 404, "sandbox_not_found"), ("alice", [made], 200, "")]


async def test_what_is_about_many_names_them_all(audited: World) -> None:
    group = await audited.api("PUT", "/v1/groups/g-1", body={"count": 3, "sandbox": CREATE})
    ids = [one["sandbox"]["id"] for one in group.json["members"]]
    await audited.api("DELETE", "/v1/groups/g-1")
    made, ended = await told(audited)
    assert made["names"] == ["g-1", *ids]
    assert sorted(ended["names"]) == sorted(["g-1", *ids])
    assert [one["action"] for one in await told(audited, name=ids[1])] == [
        "PUT /v1/groups/{name}",
        "DELETE /v1/groups/{name}",
    ]


async def test_reads_and_renewals_are_not_recorded_and_what_opens_a_sandbox_is(audited: World) -> None:
    sandbox = (
        await audited.api("POST", "/v1/sandboxes", body={**CREATE, "lease": {"name": "l", "ttl_ms": 60_000}})
    ).json
    for method, path in (
        ("GET", "/v1/sandboxes"),
        ("GET", f"/v1/sandboxes/{sandbox['id']}"),
        ("GET", "/v1/quotas"),
        ("POST", "/v1/preflight"),
        ("POST", "/v1/leases/l"),
    ):
        await audited.api(method, path, body={} if method == "POST" else None)
    await audited.api("POST", f"/v1/sandboxes/{sandbox['id']}/token")
    assert [one["action"] for one in await told(audited)] == [
        "POST /v1/sandboxes",
        "POST /v1/sandboxes/{sandbox_id}/token",
    ]


def test_every_route_that_changes_or_opens_something_is_recorded() -> None:
    left = {key for key, scope in ROUTES.items() if not Route(*key, scope).audited}
    assert {key for key in left if key[0] != "GET"} == {("POST", "/v1/preflight"), ("POST", "/v1/leases/{name}")}
    assert ("GET", "/v1/groups/{name}") not in left, "it answers with tokens"


async def test_no_entry_holds_a_secret_a_query_or_a_body(audited: World) -> None:
    made = await audited.api("POST", "/v1/keys", body={"name": "ci", "scopes": ["run"]})
    sandbox = (await audited.api("POST", "/v1/sandboxes", body=CREATE, key=made.json["key"])).json
    await audited.api("DELETE", "/v1/sandboxes", query={"label": "of=a-secret"})
    entries = await told(audited)
    text = json.dumps(entries)
    assert [one["key_id"] for one in entries] == ["settings", made.json["id"], "settings"]
    assert entries[0]["names"] == [made.json["id"]]
    for secret in ("a-secret", made.json["key"], sandbox["token"], "rbx_alice"):
        assert secret not in text


async def test_a_caller_that_goes_away_is_told_as_one(audited: World) -> None:
    audited.cluster.ready_s = None
    gone = asyncio.Event()
    asked = asyncio.ensure_future(audited.api("POST", "/v1/sandboxes", body=CREATE, hang_up=gone))
    await asyncio.sleep(1)
    gone.set()
    await asyncio.gather(asked, return_exceptions=True)
    (entry,) = await told(audited)
    assert entry["status"] in {499, 503, 408} or entry["code"]


async def test_only_operators_read_and_what_they_ask_for(audited: World) -> None:
    await audited.api("POST", "/v1/sandboxes", body=CREATE)
    await audited.api("POST", "/v1/sandboxes", body=CREATE, key=OTHER_KEY)
    assert (await audited.api("GET", "/v1/audit", key=OTHER_KEY)).code == "permission_denied"
    assert [one["owner"] for one in await told(audited, owner="bob")] == ["bob"]
    assert [one["owner"] for one in await told(audited, most="1")] == ["bob"]
    assert await told(audited, after_ms=str(EPOCH_MS + 10**6)) == []
    assert await told(audited, request_id="nope") == []
    for wrong in ({"most": "0"}, {"most": "10001"}, {"after_ms": "-1"}, {"nope": "1"}):
        assert (await audited.api("GET", "/v1/audit", query=wrong)).code == "invalid_argument"


async def test_refused_keys_are_no_entries(audited: World) -> None:
    await audited.api("POST", "/v1/sandboxes", body=CREATE, key="rbx_wrong")
    assert await told(audited) == []


async def test_where_nothing_is_kept_nothing_is_recorded_and_reading_says_so(plane: World) -> None:
    await plane.api("POST", "/v1/sandboxes", body=CREATE)
    answer = await plane.api("GET", "/v1/audit")
    assert (answer.code, "audit.kept is 0" in answer.json["detail"]) == ("unsupported", True)


async def test_an_engine_has_them_in_a_file_that_survives_a_restart_and_is_bounded(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    options = Options(audit=AuditOptions(file=file, file_bytes=4_000))
    async with world(options=options) as plane:
        await plane.api("PUT", "/v1/quotas/team-a", body={"max_sandboxes": 1})
    assert file.stat().st_mode & 0o777 == 0o600
    with file.open("a") as cut:
        cut.write('{"audit":1,"at_ms"')
    async with world(options=options) as plane:
        await plane.api("PUT", "/v1/quotas/team-b", body={"max_sandboxes": 1})
        assert [one["names"] for one in await told(plane)] == [["team-a"], ["team-b"]]
        for number in range(40):
            await plane.api("PUT", f"/v1/quotas/team-{number}", body={"max_sandboxes": 1})
        kept = await told(plane)
        assert kept[-1]["names"] == ["team-39"]
        assert 5 < len(kept) < 40
    assert file.stat().st_size + file.with_name("audit.jsonl.1").stat().st_size < 6_000


@pytest.mark.parametrize("odd", ["folder", "link", "pipe"])
def test_what_is_no_file_of_its_own_is_refused_at_the_start(tmp_path: Path, odd: str) -> None:
    file = tmp_path / "audit.jsonl"
    if odd == "folder":
        file.mkdir()
    elif odd == "link":
        file.symlink_to("/dev/zero")
    else:
        os.mkfifo(file)
    with pytest.raises(OSError, match=r"audit\.jsonl"):
        AuditFile(file, 1000)


def test_a_full_disk_costs_the_line_that_it_cuts_off_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, write = tmp_path / "audit.jsonl", os.write
    file = AuditFile(path, 100_000)
    file.write("first")
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:4]))
    with pytest.raises(OSError, match="cut off"):
        file.write("second")
    monkeypatch.setattr(os, "write", write)
    file.write("third")
    assert [*file.lines()] == ["first\n", "seco\n", "third\n"]


def test_a_file_that_cannot_be_turned_stays_open_and_loses_no_line_to_another(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    file = AuditFile(folder / "audit.jsonl", 20)
    file.write("a line that fills it")
    (folder / "audit.jsonl.1").mkdir()
    for _ in range(2):
        with pytest.raises(OSError, match=r"audit\.jsonl"):
            file.write("not written")
    with (tmp_path / "other").open("w") as other:
        (folder / "audit.jsonl.1").rmdir()
        file.write("the next")
        assert other.tell() == 0
    assert [*file.lines()] == ["a line that fills it\n", "the next\n"]
    assert (tmp_path / "other").read_text() == ""


async def test_what_is_not_kept_is_counted(audited: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(trails, "MOST_WAITING", 2)
    for _ in range(5):
        audited.service.audit.record(ENTRY)
    text = (await audited.api("GET", "/metrics")).body.decode()
    assert 'rollbox_audit_lost_total{where="store"} 3.0' in text


async def test_all_replicas_entries_are_read_at_each() -> None:
    clock, options = VirtualClock(), Options(audit=AuditOptions(kept=3))
    store = MemoryStore(clock)
    async with (
        world(clock=clock, store=store, options=options) as one,
        world(clock=clock, store=store, options=options) as other,
    ):
        for number in range(4):
            await (one, other)[number % 2].api("PUT", f"/v1/quotas/t-{number}", body={"max_sandboxes": 1})
            await asyncio.sleep(2 * PAUSE_S)
        assert sorted(entry["names"][0] for entry in await told(one)) == ["t-1", "t-2", "t-3"]
        assert await told(other) == await told(one)


ENTRY = AuditEntry(EPOCH_MS, 1, "r", "alice", "k", "10.0.0.1", "", "POST /v1/sandboxes", ("sb-1",), 200, "")


def test_a_line_is_read_as_it_was_written_and_others_are_none() -> None:
    assert AuditEntry.read(ENTRY.line) == ENTRY
    for line in ("", "{}", "[]", "null", ENTRY.line[:-5], '{"names": 5}', "\x00"):
        assert AuditEntry.read(line) is None
    assert not AuditQuery(name="sb-2").takes(ENTRY)
    assert AuditQuery(name="sb-1", owner="alice").takes(ENTRY)


def test_names_are_bounded() -> None:
    found = names_of(["x" * 1000, "a"], ["a", *(str(number) for number in range(1000))])
    assert (len(found), len(found[0]), found[1]) == (MOST_NAMES, MOST_CHARS, "a")
