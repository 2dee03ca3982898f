"""What E2B's bridge serves within a sandbox, said by hand: both codecs, half streams, other owners, ends, restarts."""

from __future__ import annotations

import gzip
import io
import json
import time
from base64 import b64encode
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from rollbox_bridges.connect.framing import COMPRESSED, Envelopes, enveloped
from rollbox_bridges.e2b.messages import PROCESS
from rollbox_bridges.e2b.signatures import signature
from tests.support.e2b_speaking import MOST, Speaker, bridging
from tests.support.fake_processes import Script
from tests.support.gateway_fake import FakeGateway, Fault

START, CONNECT = "process.Process/Start", "process.Process/Connect"
TEXT = b64encode(b"words\n").decode()


def command(*argv: str, **more: Any) -> dict[str, Any]:
    return {"process": {"cmd": argv[0], "args": argv[1:]}, "stdin": False, **more}


async def test_a_command_is_told_from_its_start_to_its_end(e2b: Speaker) -> None:
    await e2b.create()
    answer = await e2b.stream(START, command("sh", "-c", "echo words; exit 3"))
    assert answer.headers["Content-Type"] == "application/connect+json"
    first, *output, last, end = answer.events
    assert first["event"]["start"]["pid"] > 0
    assert output == [{"event": {"data": {"stdout": TEXT}}}]
    told = {"exitCode": 3, "exited": True, "status": "exit status 3", "error": "exit status 3"}
    assert (last, end) == ({"event": {"end": told}}, {})


async def test_the_binary_codec_says_the_same(e2b: Speaker) -> None:
    await e2b.create()
    config = PROCESS["ProcessConfig"](cmd="sh", args=["-c", "echo words"])
    data = enveloped(PROCESS["StartRequest"](process=config, stdin=False).SerializeToString())
    kind = {"Content-Type": "application/connect+proto"}
    answer = await e2b.within("POST", f"/{START}", data=data, **kind)
    came = [one.content for one in Envelopes(MOST).feed(answer.body)]
    events = [PROCESS["StartResponse"].FromString(one).event for one in came[:-1]]
    assert events[0].start.pid > 0
    assert events[1].data.stdout == b"words\n"
    assert (events[2].end.exit_code, events[2].end.exited) == (0, True)
    assert came[-1] == b"{}"


async def test_a_compressed_question_is_read(e2b: Speaker) -> None:
    await e2b.create()
    data = enveloped(gzip.compress(json.dumps(command("echo", "words")).encode()), COMPRESSED)
    answer = await e2b.within("POST", f"/{START}", data=data, **{"Content-Type": "application/connect+json"})
    assert {"event": {"data": {"stdout": TEXT}}} in answer.events


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "0 messages, not one"),
        (enveloped(b"{}")[:-1], "ends within an envelope"),
        (enveloped(b"{}") * 2, "several messages, not one"),
        (enveloped(b'{"later": 1}'), "later"),
        (enveloped(b"{}"), "process.cmd is empty"),
        (b"\x00\xff\xff\xff\xff", "4294967295 bytes is over"),
        (b"\x40\x00\x00\x00\x00", "unknown flags"),
    ],
)
async def test_a_stream_that_begins_wrong_ends_with_a_reason(e2b: Speaker, data: bytes, says: str) -> None:
    await e2b.create()
    answer = await e2b.within("POST", f"/{START}", data=data, **{"Content-Type": "application/connect+json"})
    assert answer.status == 200
    assert says in answer.events[-1]["error"]["message"]


async def test_a_call_that_there_is_not_is_unimplemented(e2b: Speaker) -> None:
    await e2b.create()
    answer = await e2b.call("process.Process/Later", {})
    assert (answer.status, answer.json["code"]) == (501, "unimplemented")


async def test_a_body_over_the_limit_is_refused(e2b: Speaker) -> None:
    await e2b.create()
    data = io.BytesIO(b"x" * (2**22 + 1))
    kind = {"Content-Type": "application/json"}
    answer = await e2b.within("POST", "/filesystem.Filesystem/Stat", data=data, **kind)
    assert answer.json["code"] == "out_of_range"


async def test_a_sandbox_takes_its_own_credential_alone(e2b: Speaker) -> None:
    first, second = await e2b.create(), await e2b.create()
    for token in (first["envdAccessToken"], second["trafficAccessToken"], "rbx_x", ""):
        answer = await e2b.within("GET", "/health", **{"X-Access-Token": token})
        assert answer.status == 401
    assert (await e2b.within("GET", "/health")).status == 204


async def test_the_address_of_a_file_is_enough_where_it_is_signed(fake: FakeGateway, e2b: Speaker) -> None:
    first, second = await e2b.create(), await e2b.create()
    await e2b.within("POST", "/files?path=/a", data=b"signed", **{"Content-Type": "application/octet-stream"})

    async def read(path: str, signer: dict[str, Any], until: str = "") -> tuple[int, Any]:
        signed = signature(path, "read", "", signer["envdAccessToken"], until)
        query = {"path": "/a", "signature": signed, **({"signature_expiration": until} if until else {})}
        async with e2b.http.get(e2b.url + "/files", params=query) as answer:
            return answer.status, await answer.text() if answer.ok else (await answer.json())["message"]

    later = str(int(time.time()) + 60)
    assert await read("/a", second) == await read("/a", first) == await read("/a", second, later) == (200, "signed")
    over = (401, "signature is already expired")
    assert await read("/a", second, "1") == await read("/a", second, "x") == over
    nobody = {"envdAccessToken": "rbx_none"}
    for path, signer in (("/b", second), ("/a", nobody)):
        status, message = await read(path, signer)
        assert (status, message[:40]) == (401, "no sandbox that was used through this br")
    await e2b.control("DELETE", f"/sandboxes/{second['sandboxID']}")
    assert (await read("/a", second))[0] in {401, 502}


async def test_the_end_of_a_sandbox_is_one_answer_to_everything(fake: FakeGateway, e2b: Speaker) -> None:
    name = (await e2b.create())["sandboxID"]
    fake.end(name, "node_lost")
    gone = [Fault("node_lost")] * 60
    for route in ("spawn", "read", "stat", "execs"):
        fake.fail(route, *gone)
    asked = [
        await e2b.within("GET", "/health"),
        await e2b.stream(START, command("true")),
        await e2b.within("GET", "/files?path=/a"),
        await e2b.call("filesystem.Filesystem/Stat", {"path": "/a"}),
        await e2b.call("process.Process/List", {}),
    ]
    for answer in asked:
        assert (answer.status, answer.json["sandboxId"], answer.json["code"]) == (502, name, 502)
        assert answer.json["message"].startswith("The sandbox was not found: ")
        assert "node_lost, fault: platform, mask_sample: true" in answer.json["message"]


async def test_an_end_in_the_middle_of_a_stream_is_its_error(fake: FakeGateway, e2b: Speaker) -> None:
    await e2b.create()
    told = {"code": "sandbox_lost", "detail": "it died", "type": "problem", "fault": "platform", "retry": "new_sandbox"}
    fake.processes.problems.append({**told, "status": 410, "title": "", "hint": "", "mask_sample": True})
    events = (await e2b.stream(START, command("true"))).events
    assert "start" in events[0]["event"]
    assert events[-1]["error"]["code"] == "unavailable"
    assert "The sandbox was not found" in events[-1]["error"]["message"]


async def test_output_that_was_lost_is_told(fake: FakeGateway, e2b: Speaker) -> None:
    await e2b.create()
    fake.processes.scripts["lossy"] = Script(stdout=b"rest", lost_bytes=10)
    error = (await e2b.stream(START, command("lossy"))).events[-1]["error"]
    assert (error["code"], "10 bytes of stdout" in error["message"]) == ("data_loss", True)


async def test_a_deadline_is_the_callers_and_the_commands(fake: FakeGateway, e2b: Speaker) -> None:
    await e2b.create()
    fake.processes.scripts["late"] = Script(end="deadline", exit_code=None)
    events = (await e2b.stream(START, command("late"), **{"Connect-Timeout-Ms": "1500"})).events
    assert events[-1]["error"]["code"] == "deadline_exceeded"
    assert [one.body["timeout_ms"] for one in fake.processes.execs.values()] == [1500]
    for wrong in ("x", "1" * 11, "-1"):
        answer = await e2b.stream(START, command("late"), **{"Connect-Timeout-Ms": wrong})
        assert answer.events[-1]["error"]["code"] == "invalid_argument"


async def test_a_call_that_takes_too_long_is_told_its_deadline(fake: FakeGateway, e2b: Speaker, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    await e2b.create()
    pid = await left(e2b, command("cat", stdin=True))
    short = {"Connect-Timeout-Ms": "50"}
    attached = await e2b.stream(CONNECT, {"process": {"pid": pid}}, **short)
    watched = await e2b.stream("filesystem.Filesystem/WatchDir", {"path": "/d"}, **short)
    for answer in (attached, watched):
        assert answer.events[-1]["error"]["code"] == "deadline_exceeded"
    killed = await e2b.call("process.Process/SendSignal", {"process": {"pid": pid}, "signal": 9})
    assert killed.status == 200


async def test_bash_is_sh_where_there_is_none(fake: FakeGateway, e2b: Speaker) -> None:
    await e2b.create()
    fake.fail("spawn", Fault("invalid_argument", details={"reason": "command_not_found"}))
    fake.processes.scripts["/bin/sh -l -c x"] = Script(stdout=b"words\n")
    for _ in range(2):
        assert {"event": {"data": {"stdout": TEXT}}} in (
            await e2b.stream(START, command("/bin/bash", "-l", "-c", "x"))
        ).events
    assert fake.count("POST", "/execs") == 3


async def test_a_caller_that_goes_away_leaves_its_command(fake: FakeGateway, e2b: Speaker) -> None:
    await e2b.create()
    pid = await left(e2b, command("cat", stdin=True, tag="mine"))
    listed = (await e2b.call("process.Process/List", {})).json["processes"]
    assert [(one["pid"], one["tag"], one["config"]["cmd"]) for one in listed] == [(pid, "mine", "cat")]
    assert (
        await e2b.call("process.Process/SendInput", {"process": {"tag": "mine"}, "input": {"stdin": TEXT}})
    ).json == {}
    assert (await e2b.call("process.Process/CloseStdin", {"process": {"pid": pid}})).json == {}
    made = next(iter(fake.processes.execs.values()))
    while made.result is None:
        await e2b.within("GET", "/health")
    assert bytes(made.outputs[1]) == b"words\n"
    gone = await e2b.call("process.Process/SendSignal", {"process": {"pid": pid}, "signal": "SIGNAL_SIGTERM"})
    assert (gone.status, gone.json["code"]) == (404, "not_found")


async def test_a_command_that_ends_just_now_is_one_that_is_not_there(fake: FakeGateway, e2b: Speaker) -> None:
    await e2b.create()
    pid = await left(e2b, command("cat", stdin=True))
    for fault in ("conflict", "exec_not_found"):
        fake.fail("signal", Fault(fault))
        gone = await e2b.call("process.Process/SendSignal", {"process": {"pid": pid}, "signal": "SIGNAL_SIGKILL"})
        assert (gone.status, gone.json["code"]) == (404, "not_found")


async def test_a_bridge_that_was_restarted_finds_commands_and_says_what_it_cannot(
    fake: FakeGateway, e2b: Speaker
) -> None:
    await e2b.create()
    pid = await left(e2b, command("cat", stdin=True))
    async with bridging(fake) as again:
        other = again.as_other(sandbox=e2b.sandbox)
        written = await other.call("process.Process/SendInput", {"process": {"pid": pid}, "input": {"stdin": TEXT}})
        assert (written.status, written.json["code"]) == (400, "failed_precondition")
        assert "the bridge was restarted" in written.json["message"]
        killed = await other.call("process.Process/SendSignal", {"process": {"pid": pid}, "signal": "SIGNAL_SIGKILL"})
        assert killed.status == 200
        made = next(iter(fake.processes.execs.values()))
        while made.result is None:
            await other.within("GET", "/health")
        assert made.signals == [(9, True)]
    async with bridging(fake, secret=b"of another bridge") as stranger:
        assert (await stranger.as_other(sandbox=e2b.sandbox).within("GET", "/health")).status == 401


async def left(e2b: Speaker, started: dict[str, Any]) -> int:
    """Start a command and go away; its pid."""
    headers = e2b.headers(**{"Content-Type": "application/connect+json"})
    data = enveloped(json.dumps(started).encode())
    async with e2b.http.post(f"{e2b.url}/{START}", data=data, headers=headers) as answer:
        reader = Envelopes(MOST)
        while True:
            for one in reader.feed(await answer.content.readany()):
                return int(json.loads(one.content)["event"]["start"]["pid"])


async def test_files_go_up_and_down(e2b: Speaker, tmp_path: Path) -> None:
    await e2b.create()
    plain = await e2b.within("POST", "/files?path=/a", data=b"plain", **{"Content-Type": "application/octet-stream"})
    assert plain.json == [{"name": "a", "path": "/a", "type": "file"}]
    packed = {"Content-Type": "application/octet-stream", "Content-Encoding": "gzip"}
    await e2b.within("POST", "/files?path=/b", data=gzip.compress(b"packed"), **packed)
    form = aiohttp.FormData(quote_fields=False)
    for name in ("/d/c", "/d/e"):
        form.add_field("file", b"part of " + name.encode(), filename=name)
    parts = await e2b.within("POST", "/files", data=form)
    assert [one["path"] for one in parts.json] == ["/d/c", "/d/e"]
    assert (tmp_path / "d/c").read_bytes() == b"part of /d/c"
    assert [(tmp_path / name).read_bytes() for name in ("a", "b")] == [b"plain", b"packed"]
    assert (await e2b.within("GET", "/files?path=/d/e")).body == b"part of /d/e"
    missing = await e2b.within("GET", "/files?path=/none")
    assert (missing.status, missing.json["error_code"]) == (404, "file_not_found")


@pytest.mark.parametrize(
    ("path", "data", "encoding", "status"),
    [
        ("", b"x", "identity", 400),
        ("?path=/a", b"x", "br", 415),
        ("?path=/a", b"no gzip", "gzip", 400),
        ("?path=/a%00b", b"x", "identity", 400),
        ("?path=/a", gzip.compress(b"half", mtime=0)[:-4], "gzip", 400),
    ],
)
async def test_an_upload_that_is_none_is_refused(
    e2b: Speaker, path: str, data: bytes, encoding: str, status: int
) -> None:
    await e2b.create()
    kind = {"Content-Type": "application/octet-stream", "Content-Encoding": encoding}
    assert (await e2b.within("POST", "/files" + path, data=data, **kind)).status == status
    assert (await e2b.within("GET", "/files?path=/a")).status == 404


@pytest.mark.parametrize("data", [b"", b"no boundary", b"--b\r\nContent-Disposition: form-data\r\n\r\nx\r\n--b--\r\n"])
async def test_a_form_that_is_none_is_refused(e2b: Speaker, data: bytes) -> None:
    await e2b.create()
    kind = {"Content-Type": "multipart/form-data; boundary=b"}
    answer = await e2b.within("POST", "/files?path=/a", data=data, **kind)
    assert (answer.status, answer.json["code"]) == (400, 400)
    packed = await e2b.within("POST", "/files?path=/a", data=data, **kind, **{"Content-Encoding": "gzip"})
    assert packed.status == 415


async def test_a_failure_of_the_bridge_itself_is_told(e2b: Speaker, monkeypatch: pytest.MonkeyPatch) -> None:
    await e2b.create()
    monkeypatch.setattr("rollbox_bridges.e2b.files.download", None)
    answer = await e2b.within("GET", "/files?path=/a")
    assert (answer.status, answer.json["error_code"]) == (500, "internal")


async def test_a_download_that_breaks_is_not_taken_for_whole(fake: FakeGateway, e2b: Speaker, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 100_000)
    await e2b.create()
    fake.files.problem_at_end = {"code": "internal", "detail": "it broke", "status": 500}
    with pytest.raises(aiohttp.ClientPayloadError):
        await e2b.within("GET", "/files?path=/a")


async def test_directories_are_listed_made_and_moved(e2b: Speaker, tmp_path: Path) -> None:
    await e2b.create()
    made = [await e2b.call("filesystem.Filesystem/MakeDir", {"path": "/d"}) for _ in range(2)]
    assert [one.status for one in made] == [200, 409]
    assert made[1].json["code"] == "already_exists"
    (tmp_path / "d/f").write_bytes(b"12345")
    (tmp_path / "d/f").chmod(0o640)
    entry = (await e2b.call("filesystem.Filesystem/ListDir", {"path": "/d"})).json["entries"][0]
    assert (entry["name"], entry["type"], entry["size"], entry["permissions"]) == (
        "f",
        "FILE_TYPE_FILE",
        "5",
        "-rw-r-----",
    )
    moved = await e2b.call("filesystem.Filesystem/Move", {"source": "/d/f", "destination": "/g"})
    assert moved.json["entry"]["path"] == "/g"
    assert (await e2b.call("filesystem.Filesystem/Remove", {"path": "/g"})).json == {}
    stat = await e2b.call("filesystem.Filesystem/Stat", {"path": "/g"})
    assert (stat.status, stat.json["code"]) == (404, "not_found")


async def test_changes_are_gathered_until_they_are_asked_for(fake: FakeGateway, e2b: Speaker, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    await e2b.create()
    fake.files.changes.put_nowait({"change": "watching", "path": "/d"})
    name = (await e2b.call("filesystem.Filesystem/CreateWatcher", {"path": "/d"})).json["watcherId"]
    fake.files.changes.put_nowait({"change": "created", "path": "/d/new"})
    events: list[Any] = []
    while not events:
        events = (await e2b.call("filesystem.Filesystem/GetWatcherEvents", {"watcherId": name})).json.get("events", [])
    assert events == [{"name": "new", "type": "EVENT_TYPE_CREATE"}]
    fake.files.changes.put_nowait({"change": "overflowed"})
    while True:
        answer = await e2b.call("filesystem.Filesystem/GetWatcherEvents", {"watcherId": name})
        if answer.status != 200:
            break
    assert answer.json["code"] == "data_loss"
    assert (await e2b.call("filesystem.Filesystem/RemoveWatcher", {"watcherId": name})).json == {}
    assert (await e2b.call("filesystem.Filesystem/RemoveWatcher", {"watcherId": name})).json["code"] == "not_found"
