"""Prime's bridge, said by hand: creates that wait, ids of calls, half streams, other owners, ends, restarts."""

from __future__ import annotations

import asyncio
import io
import json
import math
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from google.protobuf import json_format

from rollbox_bridges.connect.framing import Envelopes, enveloped
from rollbox_bridges.prime import creations, labels
from rollbox_bridges.prime.messages import SERVICE, SESSION
from tests.support.e2b_speaking import MOST
from tests.support.fake_processes import Script
from tests.support.gateway_fake import API_KEY, FakeGateway, Fault
from tests.support.prime_speaking import Speaker, bridging

UUID = "11111111-2222-4333-8444-555555555555"
BAD_UUID = SESSION["StartRequest"](command=SESSION["CommandSpec"](cmd="sh"), session_uuid="A" + UUID[1:])


def command(*argv: str, **more: Any) -> dict[str, Any]:
    return {"command": {"cmd": argv[0], "args": argv[1:]}, **more}


async def test_a_probe_needs_no_key(prime: Speaker) -> None:
    async with prime.http.get(f"{prime.url}/health") as answer:
        assert answer.status == 204


async def test_a_create_asks_for_the_same_in_the_platforms_words(fake: FakeGateway, prime: Speaker) -> None:
    told = await prime.create(labels=["run 7"], environment_vars={"A": "1"}, memory_gb=0.5, idle_timeout_minutes=2)
    asked = fake.bodies[0]
    assert (asked["image"], asked["env"], asked["ttl_ms"], asked["idle_timeout_ms"]) == (
        "python:1",
        {"A": "1"},
        3_600_000,
        120_000,
    )
    assert "lease" not in asked
    assert (told["status"], told["labels"], told["name"], told["vm"]) == ("RUNNING", ["run 7"], "mine", True)
    assert told["gatewayAuth"]["gateway_url"] == prime.url
    assert told["gatewayAuth"]["is_vm"] is True


async def test_a_create_with_the_same_key_is_made_once(fake: FakeGateway, prime: Speaker) -> None:
    first, second = await prime.create("a"), await prime.create("a")
    assert first["id"] == second["id"]
    assert len(fake.sandboxes) == 1


async def test_a_create_that_takes_long_is_answered_by_the_record_of_what_starts(
    fake: FakeGateway, prime: Speaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(creations, "_ANSWER_WITHIN_S", 0.01)
    await prime.create("at once")
    fake.hold_creates = True
    body = {"name": "mine", "docker_image": "python:1", "idempotency_key": "slow"}
    waits = await prime.control("POST", "/sandbox", body)
    assert (waits.status, waits.json["error_code"]) == (503, "capacity_unavailable")
    other = await prime.control("POST", "/sandbox", {**body, "labels": ["x"]})
    assert (other.status, other.json["error_code"]) == (409, "conflict")
    made = fake.sandboxes[prime.made["id"]]
    fake.sandboxes["sb-slow"] = {**made, "id": "sb-slow", "state": "starting", "labels": labels.of_key("slow")}
    told = await prime.control("POST", "/sandbox", body)
    assert (told.status, told.json["id"], told.json["status"]) == (200, "sb-slow", "PROVISIONING")
    assert fake.count("POST", "/v1/sandboxes") == 2


async def test_a_create_that_nobody_asks_for_any_more_is_withdrawn(
    fake: FakeGateway, prime: Speaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(creations, "_ABANDONED_AFTER_S", 0.01)
    fake.hold_creates = True
    body = {"name": "mine", "docker_image": "python:1", "idempotency_key": "k"}
    waits = asyncio.create_task(prime.control("POST", "/sandbox", body))
    await fake.holding.wait()
    waits.cancel()
    while not fake.withdrawn:
        await prime.control("GET", "/sandbox")


@pytest.mark.parametrize("key", ["", "another", "\u00e9"])
async def test_a_wrong_key_is_unauthenticated(prime: Speaker, key: str) -> None:
    answer = await prime.as_other(key=key).control("GET", "/sandbox")
    assert (answer.status, answer.json["error_code"]) == (401, "unauthenticated")


async def test_keys_of_clients_stand_for_those_of_owners(fake: FakeGateway) -> None:
    async with bridging(fake, keys={"pk_mine": API_KEY}) as speaker:
        assert (await speaker.as_other(key="pk_mine").control("GET", "/sandbox")).json["total"] == 0
        assert (await speaker.control("GET", "/sandbox")).status == 401


async def test_statuses_have_each_id_that_was_asked_for(fake: FakeGateway, prime: Speaker) -> None:
    made = [(await prime.create(str(n)))["id"] for n in range(3)]
    fake.end(made[1], "oom_killed")
    answer = (await prime.control("POST", "/sandbox/status:batchGet", {"sandbox_ids": [*made, "sb-none"]})).json
    told = [(one["sandbox_id"], one["status"], one["error_type"]) for one in answer["statuses"]]
    assert told == [(made[0], "RUNNING", None), (made[1], "ERROR", "OOM_KILLED"), (made[2], "RUNNING", None)]
    assert [(one["sandbox_id"], one["code"]) for one in answer["errors"]] == [("sb-none", "NOT_FOUND")]
    for bad in ([], ["x"] * 101, "x", [1]):
        assert (await prime.control("POST", "/sandbox/status:batchGet", {"sandbox_ids": bad})).status == 400


async def test_an_end_is_told_to_each_call_as_clients_look_for_it(fake: FakeGateway, prime: Speaker) -> None:
    name = (await prime.create())["id"]
    fake.end(name, "disk_full")
    ran = await prime.within("POST", "exec", json.dumps({"command": "true"}).encode())
    assert (ran.status, ran.json["error"]) == (409, "sandbox_terminated")
    assert "[disk_full, fault: workload, mask_sample: false]" in ran.json["detail"]
    fake.fail("spawn", Fault("disk_full"))
    started = await prime.stream("Start", "StartRequest", command("true"))
    assert json.loads(started[-1])["error"]["code"] == "not_found"
    context = (await prime.control("GET", f"/sandbox/{name}/error-context")).json
    assert (context["status"], context["errorType"]) == ("ERROR", "DISK_FULL")


async def test_a_delete_of_many_takes_those_that_it_names(fake: FakeGateway, prime: Speaker) -> None:
    for n, mark in enumerate("aab"):
        await prime.create(str(n), labels=[mark], team_id="t")
    nothing = await prime.control("DELETE", "/sandbox", {"all_users": False})
    assert (nothing.status, "nothing to delete" in nothing.json["detail"]) == (400, True)
    assert len((await prime.control("DELETE", "/sandbox", {"labels": ["a"]})).json["succeeded"]) == 2
    assert (await prime.control("DELETE", "/sandbox", {"labels": ["a"]})).json["succeeded"] == []
    assert (await prime.control("DELETE", "/sandbox", {"team_id": "other", "all_users": True})).json["succeeded"] == []
    assert len((await prime.control("DELETE", "/sandbox", {"all_users": True})).json["succeeded"]) == 1
    unknown = (await prime.control("DELETE", "/sandbox", {"sandbox_ids": ["sb-none"]})).json
    assert [one["sandbox_id"] for one in unknown["failed"]] == ["sb-none"]


async def test_a_credential_of_another_sandbox_opens_nothing(prime: Speaker) -> None:
    first, second = await prime.create("1"), await prime.create("2")
    auth = {**second["gatewayAuth"], "token": first["gatewayAuth"]["token"]}
    stranger = prime.as_other(made={"gatewayAuth": auth})
    assert (await stranger.within("GET", "read-file?path=/a")).status == 401
    called = await stranger.call("List", "ListRequest", {})
    assert (called.status, called.json["code"]) == (401, "unauthenticated")
    async with prime.http.get(f"{prime.url}/rollbox/{first['id']}/read-file?path=/a") as answer:
        assert answer.status == 401


async def test_a_command_is_told_from_its_start_to_its_end(fake: FakeGateway, prime: Speaker) -> None:
    await prime.create()
    first, *output, last, close = await prime.stream("Start", "StartRequest", command("sh", "-c", "echo words; exit 3"))
    assert first["start"]["pid"] > 0
    assert output == [{"data": {"stdout": "d29yZHMK"}}]
    assert last["end"] == {"exitCode": 3, "exited": True, "status": "exit status 3", "error": "exit status 3"}
    assert close == "{}"


async def test_a_session_is_started_once_and_found_after_its_end(fake: FakeGateway, prime: Speaker) -> None:
    await prime.create()
    asked = command("sh", "-c", "echo words; exit 3", session_uuid=UUID)
    first, second = [await prime.stream("Start", "StartRequest", asked) for _ in range(2)]
    assert first == second
    assert len(fake.processes.execs) == 1
    again = await prime.stream("Connect", "ConnectRequest", {"session": {"session_uuid": UUID}})
    # What it wrote before is not told again, its start and its end are.
    assert [*again[0], *again[1]] == ["start", "end"]
    assert again[0] == first[0]
    fake.fail("spawn", Fault("conflict"))
    other = await prime.stream("Start", "StartRequest", command("sh", "-c", "other", session_uuid=UUID))
    assert json.loads(other[-1])["error"]["code"] == "failed_precondition"
    none = await prime.stream("Connect", "ConnectRequest", {"session": {"session_uuid": UUID[:-1] + "0"}})
    assert json.loads(none[-1])["error"]["code"] == "not_found"


async def test_input_and_signals_of_one_id_are_applied_once(fake: FakeGateway, prime: Speaker) -> None:
    await prime.create()
    await left(prime, command("cat", stdin=True, session_uuid=UUID))
    session = {"session_uuid": UUID}
    for _ in range(2):
        sent = {"session": session, "input": {"stdin": "d29yZHMK"}, "inputUuid": "one"}
        assert (await prime.call("SendInput", "SendInputRequest", sent)).status == 200
    listed = (await prime.call("List", "ListRequest", {})).body
    assert [(one.session_uuid, one.command.cmd) for one in SESSION["ListResponse"].FromString(listed).sessions] == [
        (UUID, "cat")
    ]
    for _ in range(2):
        sent = {"session": session, "signal": "SIGNAL_SIGTERM", "signalUuid": "two"}
        assert (await prime.call("SendSignal", "SendSignalRequest", sent)).status == 200
    made = next(iter(fake.processes.execs.values()))
    while made.result is None:
        await prime.call("List", "ListRequest", {})
    assert bytes(made.stdin) == b"words\n"
    assert made.signals == [(15, True)]
    late = {"session": session, "input": {"stdin": "d29yZHMK"}, "inputUuid": "three"}
    gone = await prime.call("SendInput", "SendInputRequest", late)
    assert (gone.status, gone.json["code"]) == (404, "not_found")


async def test_a_caller_that_goes_away_ends_what_has_no_session(fake: FakeGateway, prime: Speaker) -> None:
    await prime.create()
    await left(prime, command("cat", stdin=True))
    made = next(iter(fake.processes.execs.values()))
    while made.result is None:
        await prime.call("List", "ListRequest", {})
    assert made.result["end"] == "cancelled"


async def test_a_bridge_that_was_restarted_finds_sessions_and_says_what_it_cannot(
    fake: FakeGateway, prime: Speaker
) -> None:
    await prime.create()
    await left(prime, command("cat", stdin=True, session_uuid=UUID))
    session = {"session_uuid": UUID}
    async with bridging(fake) as again:
        other = again.as_other(made=prime.made)
        written = await other.call("SendInput", "SendInputRequest", {"session": session, "input": {"stdin": "eA=="}})
        assert (written.status, written.json["code"]) == (400, "failed_precondition")
        assert "the bridge was restarted" in written.json["message"]
        killed = await other.call("SendSignal", "SendSignalRequest", {"session": session, "signal": "SIGNAL_SIGKILL"})
        assert killed.status == 200
    async with bridging(fake, secret=b"of another bridge") as stranger:
        assert (await stranger.as_other(made=prime.made).within("GET", "read-file?path=/a")).status == 401


async def left(prime: Speaker, started: dict[str, Any]) -> int:
    """Start a command and go away; its pid."""
    auth = prime.made["gatewayAuth"]
    url = f"{prime.url}/{auth['user_ns']}/{auth['job_id']}/{SERVICE}/Start"
    headers = {"Authorization": f"Bearer {auth['token']}", "Content-Type": "application/connect+proto"}
    data = enveloped(json_format.ParseDict(started, SESSION["StartRequest"]()).SerializeToString())
    async with prime.http.post(url, data=data, headers=headers) as answer:
        reader = Envelopes(MOST)
        while True:
            for one in reader.feed(await answer.content.readany()):
                return int(SESSION["StartResponse"].FromString(one.content).event.start.pid)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "invalid_argument"),
        (enveloped(b"")[:3], "invalid_argument"),
        (enveloped(b"\x0a\x00" * 2)[:-1], "invalid_argument"),
        (enveloped(b"") * 2, "invalid_argument"),
        (enveloped(b"\xff"), "invalid_argument"),
        (enveloped(BAD_UUID.SerializeToString()), "invalid_argument"),
        (b"\x00\xff\xff\xff\xff", "out_of_range"),
    ],
)
async def test_a_stream_that_is_half_or_none_is_refused(prime: Speaker, data: bytes, code: str) -> None:
    await prime.create()
    kind = {"Content-Type": "application/connect+proto"}
    answer = await prime.within("POST", f"{SERVICE}/Start", data, **kind)
    reader = Envelopes(MOST)
    [end] = reader.feed(answer.body)
    assert json.loads(end.content)["error"]["code"] == code


async def test_calls_that_are_none_are_told_so(prime: Speaker) -> None:
    await prime.create()
    answer = await prime.within("POST", f"{SERVICE}/Later", b"", **{"Content-Type": "application/proto"})
    assert (answer.status, answer.json["code"]) == (501, "unimplemented")
    assert (await prime.within("POST", f"{SERVICE}/Start", b"", **{"Content-Type": "text/plain"})).status == 415
    assert (await prime.within("GET", "later")).status == 404


async def test_a_command_of_the_older_generation_is_one_answer(fake: FakeGateway, prime: Speaker) -> None:
    await prime.create(vm=False)
    assert prime.made["gatewayAuth"]["is_vm"] is False
    body = {"command": "x", "working_dir": None, "env": {"A": "1"}, "sandbox_id": prime.made["id"], "timeout": 10}
    fake.results["x"] = {"stdout": "out", "stderr": "err", "exit_code": 3}
    told = (await prime.within("POST", "exec", json.dumps(body).encode())).json
    assert told == {"stdout": "out", "stderr": "err", "exit_code": 3}
    fake.results["x"] = {"end": "deadline", "exit_code": None}
    assert (await prime.within("POST", "exec", json.dumps(body).encode())).status == 408
    fake.results["x"] = {"stdout": "tail", "stdout_truncated": True, "stdout_total_bytes": 2**30}
    assert (await prime.within("POST", "exec", json.dumps(body).encode())).status == 413
    refused: list[dict[str, Any]] = [{"later": 1}, {"command": 1}, {"env": []}, {"user": 0}, {"sandbox_id": []}]
    refused += [{"timeout": one} for one in (-1, 0, True, "5", 10**400, math.nan)]
    for bad in [*refused, {"sandbox_id": "sb-other"}]:
        assert (await prime.within("POST", "exec", json.dumps({**body, **bad}).encode())).status == 400


async def test_files_go_up_and_down_and_are_read_by_windows(prime: Speaker, tmp_path: Path) -> None:
    await prime.create()
    form = aiohttp.FormData()
    form.add_field("file", b"0123456789", filename="x")
    told = (await prime.within("POST", "upload?path=/d/f", form)).json
    assert (told["success"], told["path"], told["size"]) == (True, "/d/f", 10)
    assert (await prime.within("GET", "download?path=/d/f")).body == b"0123456789"
    for query, content in (
        ("", "0123456789"),
        ("&offset=-4", "6789"),
        ("&offset=-99&length=2", "01"),
        ("&offset=99", ""),
    ):
        told = (await prime.within("GET", f"read-file?path=/d/f{query}")).json
        assert (told["content"], told["total_size"], told["truncated"]) == (content, 10, content != "0123456789")
    (tmp_path / "big").touch()
    with (tmp_path / "big").open("wb") as file:
        file.truncate(2**25 + 1)
    assert (await prime.within("GET", "read-file?path=/big")).status == 413
    for path in ("read-file?path=/none", "download?path=/none"):
        assert (await prime.within("GET", path)).status == 404
    for path in (
        "read-file",
        "read-file?path=/d/f&offset=x",
        "read-file?path=/d/f&length=-1",
        "download?path=/d/f&sandbox_id=other",
    ):
        assert (await prime.within("GET", path)).status == 400


@pytest.mark.parametrize("data", [b"", b"no boundary", b"--b\r\nContent-Disposition: form-data\r\n\r\nx\r\n--b--\r\n"])
async def test_a_form_that_is_none_is_refused(prime: Speaker, data: bytes) -> None:
    await prime.create()
    kind = {"Content-Type": "multipart/form-data; boundary=b"}
    answer = await prime.within("POST", "upload?path=/a", data, **kind)
    assert (answer.status, "detail" in answer.json) == (400, True)


async def test_a_network_is_switched_and_told_by_lists(fake: FakeGateway, prime: Speaker) -> None:
    name = (await prime.create())["id"]
    path = f"/sandbox/{name}/egress-policy"
    switches: list[dict[str, Any]] = [{"allowlist": None, "denylist": []}, {"allowlist": [], "denylist": None}]
    for lists in switches:
        told = (await prime.control("PUT", path, lists)).json
        assert (told["policy"], told["applied"]) == (lists, True)
        assert told["generation"] == told["applied_generation"]
    assert (await prime.control("GET", path)).json["policy"]["allowlist"] == []
    refused: list[dict[str, Any]] = [{"allowlist": [], "denylist": []}, {}, {"allowlist": ["http://x"]}, {"later": 1}]
    for bad in refused:
        assert (await prime.control("PUT", path, bad)).status == 400


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/sandbox/networks"),
        ("GET", "/sandbox/volumes"),
        ("POST", "/sandbox/sb-1/ssh-session"),
        ("GET", "/images"),
        ("POST", "/images/build"),
        ("GET", "/template/registry-credentials"),
        ("GET", "/user/whoami"),
    ],
)
async def test_what_there_is_not_says_so_and_what_to_do(prime: Speaker, method: str, path: str) -> None:
    answer = await prime.control(method, path, {})
    assert (answer.status, answer.json["error_code"]) == (501, "unsupported")
    assert "is not supported by rollbox's bridge. " in answer.json["detail"]


@pytest.mark.parametrize("path", ["/sandbox/background-jobs/status:batchGet", "/later", "/sandbox/sb-1/later"])
async def test_what_clients_do_without_is_not_found(prime: Speaker, path: str) -> None:
    assert (await prime.control("POST", path, {})).status == 404


@pytest.mark.parametrize(("body", "status"), [(b"{", 400), (b"[]", 400), (b" " * (2**20 + 1), 413)])
async def test_a_body_that_is_none_is_refused(prime: Speaker, body: bytes, status: int) -> None:
    headers = {"Authorization": f"Bearer {prime.key}"}
    async with prime.http.post(f"{prime.url}/api/v1/sandbox", data=io.BytesIO(body), headers=headers) as answer:
        assert answer.status == status
        assert "detail" in await answer.json()


@pytest.mark.parametrize(("code", "status"), [("quota_exceeded", 429), ("image_not_found", 404), ("unsupported", 501)])
async def test_a_failed_create_is_told(fake: FakeGateway, prime: Speaker, code: str, status: int) -> None:
    fake.fail("create", Fault(code))
    answer = await prime.control("POST", "/sandbox", {"name": "x", "docker_image": "i", "idempotency_key": "k"})
    assert (answer.status, answer.json["error_code"]) == (status, code)


async def test_a_start_command_runs_from_the_start_and_is_the_log(fake: FakeGateway, prime: Speaker) -> None:
    fake.processes.scripts["sh -c x"] = Script(stdout=b"out\n", stderr=b"err\n", hold=True)
    name = (await prime.create(start_command={"executable": "sh", "args": ["-c", "x"]}))["id"]
    assert (await prime.control("GET", f"/sandbox/{name}/logs")).json == {"logs": "out\nerr\n"}


async def test_a_start_command_that_cannot_run_leaves_no_sandbox(fake: FakeGateway, prime: Speaker) -> None:
    fake.fail("spawn", Fault("invalid_argument", details={"reason": "command_not_found"}))
    body = {"name": "x", "docker_image": "i", "idempotency_key": "k", "start_command": "nope"}
    answer = await prime.control("POST", "/sandbox", body)
    assert (answer.status, answer.json["error_code"]) == (400, "invalid_argument")
    assert [one["state"] for one in fake.sandboxes.values()] == ["ended"]


async def test_many_calls_at_once_are_answered(prime: Speaker) -> None:
    await prime.create()
    told = await asyncio.gather(*(prime.stream("Start", "StartRequest", command("true")) for _ in range(50)))
    assert {one[-1] for one in told} == {"{}"}
