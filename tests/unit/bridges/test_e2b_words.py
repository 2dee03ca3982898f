"""What the bridge says in E2B's words: errors, credentials, places, creates, networks, lists, files and cells."""

from __future__ import annotations

import contextlib
import json
import re
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from rollbox import (
    Cell,
    CellError,
    CellOutput,
    CellResult,
    EgressPolicy,
    ExecResult,
    FileChange,
    FileInfo,
    Pool,
    SandboxRecord,
    errors,
)
from rollbox_bridges import faults
from rollbox_bridges.credentials import Credentials
from rollbox_bridges.e2b import cells, creating, entries, lists, network, places, pools, ports, records, tags, words
from rollbox_bridges.e2b.settings import Settings
from rollbox_bridges.e2b.signatures import signature
from rollbox_bridges.processes.streaming import ended

CONTRACT = Path(__file__).parents[3] / "contract"
CODES = tomllib.loads((CONTRACT / "errors.toml").read_text())["code"]
ENDS = tomllib.loads((CONTRACT / "ends.toml").read_text())["end"]
SETTINGS = Settings(secret=b"s" * 16, default_image="python:1", templates={"mine": "registry/mine:2"})
RECORD = SandboxRecord.from_json(
    {
        "id": "sb-1",
        "state": "running",
        "image": "python:1",
        "labels": {"k": "v", creating.TEMPLATE_LABEL: "base"},
        "cpu_millicores": {"request": 100, "limit": 1500},
        "memory_bytes": {"request": 2**20, "limit": 2**30},
        "created_at_ms": 1_000,
        "ready_at_ms": 2_000,
        "expires_at_ms": 62_000,
    }
)


def error(code: str, detail: str = "it is so") -> errors.SandboxError:
    return errors.BY_CODE[code](detail)


# Of sandboxes that never ran, whose end is told to each caller that asks.
NEVER_RAN = {
    "capacity_unavailable",
    "dataset_unavailable",
    "image_not_found",
    "image_pull_failed",
    "image_store_full",
    "internal",
    "invalid_argument",
    "isolation_missing",
    "start_queue_timeout",
    "start_timeout",
    "unsupported",
    "upstream_timeout",
}


def test_a_code_that_ends_a_running_sandbox_is_told_as_its_end() -> None:
    of_ends = {one["code"] for one in ENDS.values()}
    assert of_ends - NEVER_RAN - faults.ENDED == set()
    assert faults.ENDED - of_ends == {"sandbox_not_found"}


@pytest.mark.parametrize("code", sorted(CODES))
def test_every_code_has_a_status_and_keeps_its_meaning(code: str) -> None:
    one = error(code)
    refusal, connect = words.as_refusal(one), words.as_connect(one)
    assert 400 <= refusal.status <= 599
    for text in (refusal.message, connect.message):
        assert f"[{code}, fault: {one.fault}, mask_sample: {str(one.mask_sample).lower()}]" in text
    # A client tries again by itself on these alone, unless it is told not to.
    again = refusal.status in {429, 502, 503, 504}
    assert refusal.headers["Should-Retry"] == "false" or one.retry == "later"
    assert not (again and one.retry == "never") or refusal.headers["Should-Retry"] == "false"


def test_an_ended_sandbox_is_told_in_the_words_that_clients_look_for() -> None:
    refusal = words.as_refusal(error("ttl_expired"), "sb-1")
    assert (refusal.status, refusal.body()["error_code"]) == (404, "ttl_expired")
    end = words.gone(error("ttl_expired"), "sb-1")
    assert end is not None
    body = json.loads(end.body())
    assert (body["code"], body["sandboxId"]) == (502, "sb-1")
    for text in (refusal.message, body["message"]):
        assert "does not exist" in text
        assert "STOPPED state" in text
    assert "The sandbox was not found" in body["message"]
    assert words.gone(error("file_not_found"), "sb-1") is None
    assert words.in_stream(error("sandbox_lost"), "sb-1").code == "unavailable"


def test_a_user_that_an_image_has_not_is_a_wrong_credential() -> None:
    one = errors.InvalidArgument("user 'x' is not there", details={"reason": "user_not_found"})
    assert (words.as_refusal(one).status, words.as_connect(one).code) == (401, "unauthenticated")


@given(some.text(max_size=60), some.from_regex(r"[a-z][a-z0-9-]{0,30}", fullmatch=True))
def test_a_credential_opens_for_its_sandbox_and_purpose_alone(key: str, sandbox_id: str) -> None:
    mine, other = Credentials(b"a" * 16), Credentials(b"b" * 16)
    sealed = mine.sealed("access", sandbox_id, key)
    assert sealed == mine.sealed("access", sandbox_id, key)
    assert mine.opened("access", sandbox_id, sealed) == key
    assert mine.opened("traffic", sandbox_id, sealed) is None
    assert mine.opened("access", sandbox_id + "x", sealed) is None
    assert other.opened("access", sandbox_id, sealed) is None
    assert not key or key not in sealed or len(key) < 4


@given(some.text(max_size=200))
def test_what_is_no_credential_opens_nothing(text: str) -> None:
    for given_ in (text, "rbx_" + text):
        assert Credentials(b"a" * 16).opened("access", "sb-1", given_) is None


def test_a_signature_is_that_of_e2bs_clients() -> None:
    # sha256 of "/tmp/a:read:user:token", in base64 of addresses.
    assert signature("/tmp/a", "read", "user", "token") == "v1_" + SIGNED
    assert signature("/tmp/a", "read", "user", "token", "17") != "v1_" + SIGNED


SIGNED = "QWD6k4p1iDIDKCW6EAOoUosxT0FpphZhN3AN8lEorkI"


@pytest.mark.parametrize(
    ("headers", "host", "place"),
    [
        ({"E2b-Sandbox-Id": "sb-1", "E2b-Sandbox-Port": "49983"}, "any", ("sb-1", 49983)),
        ({}, "8000-sb-1.localhost:3000", ("sb-1", 8000)),
        ({}, "8000-sb-1.LOCALHOST", ("sb-1", 8000)),
        ({}, "api.localhost", None),
        ({}, "127.0.0.1:3000", None),
        ({}, "8000-sb-1.elsewhere.example", None),
    ],
)
def test_a_request_is_for_a_port_by_headers_or_by_host(headers: dict[str, str], host: str, place: Any) -> None:
    assert places.place_of(headers, host, "localhost:3000") == place


@pytest.mark.parametrize("port", ["", "0", "65536", "x", "1" * 30, "\u0661"])
def test_what_is_no_port_is_refused(port: str) -> None:
    with pytest.raises(words.Refusal):
        places.place_of({"E2b-Sandbox-Id": "sb-1", "E2b-Sandbox-Port": port}, "any", None)
    with pytest.raises(words.Refusal):
        places.place_of({"E2b-Sandbox-Id": "../x", "E2b-Sandbox-Port": "80"}, "any", None)


@pytest.mark.parametrize("path", ["/../exec", "/a/%2e%2E/b", "/a/.", "/..\\x", "http://elsewhere/", "*", "/%2E%2e"])
def test_a_path_that_could_leave_its_port_is_refused(path: str) -> None:
    with pytest.raises(words.Refusal):
        ports.checked(path)


@pytest.mark.parametrize("path", ["/", "/a/..b/c...?x=/../y", "/a%20b", "//a"])
def test_a_path_within_its_port_is_left_as_it_is(path: str) -> None:
    assert ports.checked(path) == path


def test_a_create_is_read_with_its_image_from_template_settings_or_metadata() -> None:
    base = creating.wish_of({"templateID": "base", "timeout": 60, "envVars": {"A": "1"}}, SETTINGS)
    assert (base.image, base.named, base.ttl_s, base.env) == ("python:1", False, 60.0, {"A": "1"})
    assert creating.wish_of({"templateID": "mine"}, SETTINGS).image == "registry/mine:2"
    named = creating.wish_of({"templateID": "debian:12"}, SETTINGS)
    assert (named.image, named.named) == ("debian:12", True)
    by_key = creating.wish_of({"templateID": "base", "metadata": {"rollbox.image": "swe:7", "a": "b"}}, SETTINGS)
    assert (by_key.image, by_key.named) == ("swe:7", False)
    assert by_key.labels == {"rollbox.image": "swe:7", "a": "b", "e2b/template": "base"}


@pytest.mark.parametrize(
    ("more", "status"),
    [
        ({"nope": 1}, 400),
        ({"autoPause": True}, 501),
        ({"mcp": {}}, 501),
        ({"timeout": -1}, 400),
        ({"timeout": "60"}, 400),
        ({"timeout": True}, 400),
        ({"metadata": {"": "x"}}, 400),
        ({"metadata": {"k": "\n"}}, 400),
        ({"metadata": {"k": 1}}, 400),
        ({"metadata": {str(n): "" for n in range(63)}}, 400),
        ({"envVars": []}, 400),
        ({"templateID": 7}, 400),
        ({"network": {"egressProxy": {"host": "x"}}}, 501),
        ({"network": {"allowOut": ["a"], "denyOut": ["b"]}}, 501),
        ({"allow_internet_access": "no"}, 400),
    ],
)
def test_what_a_create_cannot_have_is_refused(more: dict[str, Any], status: int) -> None:
    with pytest.raises(words.Refusal) as refused:
        creating.wish_of({"templateID": "base", **more}, SETTINGS)
    assert refused.value.status == status


def test_a_create_says_nothing_with_what_clients_send_by_themselves() -> None:
    sent: dict[str, Any] = {
        "autoPause": False,
        "secure": True,
        "allow_internet_access": True,
        "mcp": None,
        "volumeMounts": [],
    }
    assert creating.wish_of({"templateID": "base", **sent}, SETTINGS).egress is None


def test_networks_become_policies() -> None:
    assert network.egress_of(False, None, "packages") == "offline"
    assert network.egress_of(True, None, "packages") == "packages"
    assert network.egress_of(None, {}, None) is None
    everything = {"allowOut": ["example.org", "10.0.0.0/8"], "denyOut": ["0.0.0.0/0"]}
    some_ = network.egress_of(True, everything, None)
    assert isinstance(some_, EgressPolicy)
    assert some_.to_json() == {"mode": "allow", "allow": [{"host": "example.org"}, {"cidr": "10.0.0.0/8"}]}
    none = network.egress_of(True, {"denyOut": ["0.0.0.0/0"]}, None)
    assert isinstance(none, EgressPolicy)
    assert none.mode == "none"
    denied = network.policy_of({"denyOut": ["8.8.8.8"]})
    assert denied is not None
    assert denied.to_json() == {"mode": "deny", "deny": [{"cidr": "8.8.8.8"}]}


def test_a_record_is_told_as_a_sandbox() -> None:
    told = records.listed(RECORD)
    assert told["metadata"] == {"k": "v"}
    assert (told["templateID"], told["cpuCount"], told["memoryMB"]) == ("base", 2, 1024)
    assert (told["startedAt"], told["endAt"]) == ("1970-01-01T00:00:02.000Z", "1970-01-01T00:01:02.000Z")
    opened = records.created(RECORD, "a", "t", "localhost:1")
    assert (opened["sandboxID"], opened["envdAccessToken"], opened["trafficAccessToken"]) == ("sb-1", "a", "t")


@given(some.lists(some.integers(0, 5), max_size=30), some.integers(1, 7), some.booleans())
def test_pages_have_each_sandbox_once_in_their_order(times: list[int], limit: int, ascending: bool) -> None:
    all_ = [replace(RECORD, id=f"sb-{n}", created_at_ms=at) for n, at in enumerate(times)]
    wish = lists.ListWish(limit=limit, ascending=ascending)
    whole, came = lists.found(all_, wish), list[SandboxRecord]()
    while True:
        page = lists.page(whole, wish)
        came += page.records
        wish = replace(wish, token=page.next_token)
        if not wish.token:
            break
        assert len(page.records) == limit
    assert came == whole
    assert [one.created_at_ms for one in came] == sorted(times, reverse=not ascending)


def of_query(**query: str) -> lists.ListWish:
    return lists.wish_of(query, [query.get("state", "")])


def test_lists_are_asked_for_by_what_sandboxes_are() -> None:
    ended = replace(RECORD, state="ended")
    assert lists.found([RECORD, ended], of_query()) == [RECORD]
    assert lists.found([RECORD, ended], of_query(state="running,paused")) == [RECORD]
    # It began to run at 2 s.
    for query in ({"state": "paused"}, {"template": "other"}, {"startedAfter": "1970-01-01T00:00:02.001Z"}):
        assert lists.found([RECORD], of_query(**query)) == []
    assert lists.found([RECORD], of_query(template="base", startedAfter="1970-01-01T01:00:02+01:00")) == [RECORD]
    assert of_query(metadata="a=b%26c&d=").labels == {"a": "b&c", "d": ""}


@pytest.mark.parametrize(
    "query",
    [
        *({"limit": one} for one in ("0", "101", "x")),
        {"state": "gone"},
        {"metadata": "a"},
        {"order": "up"},
        {"startedAfter": "soon"},
        {"later": "1"},
    ],
)
def test_a_list_that_is_malformed_or_asks_for_what_is_not_known_is_refused(query: dict[str, str]) -> None:
    with pytest.raises(words.Refusal) as refused:
        of_query(**query)
    assert refused.value.status == 400


@given(some.text(max_size=40))
def test_a_token_that_no_list_has_given_is_refused(token: str) -> None:
    with contextlib.suppress(words.Refusal):
        assert len(lists.page([RECORD], lists.ListWish(limit=1, token=token)).records) <= 1


def test_a_pools_template_becomes_the_options_that_claim_from_it() -> None:
    template = {
        "image": "python:1",
        "cpu_millicores": {"request": 100, "limit": 2000},
        "memory_bytes": {"request": None, "limit": 2**29},
        "pids_limit": 64,
        "gpu": 0,
    }
    made = pools.options_of(Pool(name="p", image="python:1", template=template))
    assert made == {"cpu": (0.1, 2.0), "memory": 2**29, "pids": 64}
    with pytest.raises(words.Refusal, match="mounts"):
        pools.options_of(Pool(name="p", image="python:1", template={**template, "mounts": {"/d": {}}}))


@pytest.mark.parametrize("tag", [None, "a", "with spaces \u00e9", "x" * 30])
def test_the_id_of_a_command_holds_its_tag(tag: str | None) -> None:
    made = tags.exec_id_of(tag, terminal=tag == "a")
    assert tags.tag_of(made) == tag
    assert tags.on_terminal(made) is (tag == "a")
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", made)
    assert made != tags.exec_id_of(tag, terminal=tag == "a")
    assert tags.tag_of("another") is None


def result(**more: Any) -> ExecResult:
    return ExecResult.from_json(
        {"exec_id": "e", "end": "exited", "exit_code": 0, "stdout": "", "stderr": "", **more}, "sb-1"
    )


def GO(_: int) -> int:  # noqa: N802 - a constant
    return -1


def test_an_end_is_told_in_the_words_of_gos_processes() -> None:
    assert ended(result(), GO) == {"exit_code": 0, "exited": True, "status": "exit status 0"}
    failed = {"exit_code": 3, "exited": True, "status": "exit status 3", "error": "exit status 3"}
    assert ended(result(exit_code=3), GO) == failed
    killed = ended(result(end="signalled", exit_code=None, signal=9), GO)
    assert killed == {"exit_code": -1, "exited": False, "status": "signal: killed", "error": "signal: killed"}
    assert ended(result(end="oom_killed", exit_code=None, signal=9), GO)["error"] == "signal: killed (oom_killed)"


def test_a_file_is_told_with_its_kind_and_its_mode_in_letters() -> None:
    info = FileInfo(path="/a/b", kind="file", size_bytes=5, mode=0o640, modified_at_ms=1500)
    told = entries.entry(info, "root", "users")
    assert (told.name, told.path, told.type, told.size, told.mode) == ("b", "/a/b", 1, 5, 0o640)
    assert (told.permissions, told.owner, told.group) == ("-rw-r-----", "root", "users")
    assert (told.modified_time.seconds, told.modified_time.nanos) == (1, 500_000_000)
    assert not told.HasField("symlink_target")
    link = FileInfo(path="/a/l", kind="symlink", link_target="b", mode=0o777)
    assert (entries.entry(link, "", "", info).type, entries.entry(link, "", "", None).type) == (1, 0)
    assert entries.entry(link, "", "", info).symlink_target == "b"


def test_deep_lists_stop_at_their_depth() -> None:
    all_ = [FileInfo(path=path, kind="file") for path in ("/a/b", "/a/b/c", "/a/b/c/d")]
    assert [one.path for one in entries.within(all_, "/a", 2)] == ["/a/b", "/a/b/c"]
    assert [one.path for one in entries.within([FileInfo(path="/b", kind="file")], "/", 1)] == ["/b"]


def test_changes_have_names_below_the_watched_directory() -> None:
    def told(change: Any, path: str, origin: str | None = None) -> list[tuple[str, int]]:
        return [(one.name, one.type) for one in entries.changes(FileChange(change, path, origin), "/w")]

    assert told("created", "/w/a") == [("a", 1)]
    assert told("written", "/w/d/a") == [("d/a", 2)]
    assert told("moved", "/w/b", "/w/a") == [("a", 4), ("b", 1)]
    assert told("watching", "/w") == []


def lines(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in data.splitlines()]


def test_a_cell_is_told_in_lines_that_no_client_cuts_elsewhere() -> None:
    writer = cells.Lines()
    out = writer.output(CellOutput("stdout", "a\u2028\u0085\u00e9".encode()))
    assert len(out.decode().splitlines()) == 1
    assert lines(out)[0]["text"] == "a\u2028\u0085\u00e9"
    assert writer.output(CellOutput("stdout", b"\xc3")) == b""
    assert lines(writer.output(CellOutput("stdout", b"\xa9")))[0]["text"] == "\u00e9"
    shown = CellResult({"text/plain": b"'x'", "image/png": b"\x89", "x/y": b"z"}, main=True)
    told = lines(writer.result(shown))[0]
    assert told == {"type": "result", "is_main_result": True, "text": "x", "png": "iQ==", "extra": {"x/y": "z"}}


def test_the_end_of_a_cell_says_what_was_cut_and_why_it_ended() -> None:
    kinds = [one["type"] for one in lines(cells.Lines().end(Cell(end="finished", cell_id="c", execution_count=3)))]
    assert kinds == ["number_of_executions", "end_of_execution"]
    raised = Cell(end="finished", cell_id="c", error=CellError("E", "v", "t"), stdout_total_bytes=9)
    told = lines(cells.Lines().end(raised))
    assert told[0]["type"] == "stderr"
    assert "stdout was cut" in told[0]["text"]
    assert told[1] == {"type": "error", "name": "E", "value": "v", "traceback": "t"}
    died = lines(cells.Lines().end(Cell(end="died", cell_id="c", reason="it exited")))
    assert (died[0]["name"], died[0]["value"]) == ("UnexpectedEndOfExecution", "it exited")


def test_the_table_of_a_frame_is_told_by_column() -> None:
    table = json.dumps({"columns": ["a", "b"], "rows": [[1, 2], [3, 4]], "total_rows": 2}).encode()
    told = lines(cells.Lines().result(CellResult({"application/vnd.rollbox.table+json": table})))[0]
    assert told["data"] == {"a": [1, 3], "b": [2, 4]}
