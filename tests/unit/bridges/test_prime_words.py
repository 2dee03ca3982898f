"""What the bridge says in Prime's words: errors, ends, tokens, creates, networks and lists."""

from __future__ import annotations

import contextlib
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from rollbox import EgressPolicy, EgressState, End, SandboxRecord, errors
from rollbox_bridges import faults
from rollbox_bridges.connect import codec
from rollbox_bridges.connect.codes import ConnectError
from rollbox_bridges.e2b.messages import PROCESS
from rollbox_bridges.prime import creating, labels, network, records, words
from rollbox_bridges.prime.messages import SESSION
from rollbox_bridges.prime.settings import Settings
from rollbox_bridges.prime.tokens import Tokens

CONTRACT = Path(__file__).parents[3] / "contract"
CODES = tomllib.loads((CONTRACT / "errors.toml").read_text())["code"]
ENDS = tomllib.loads((CONTRACT / "ends.toml").read_text())["end"]
SETTINGS = Settings(secret=b"s" * 16, gpu_label="gpu/type")
STATUSES = {"PENDING", "PROVISIONING", "RUNNING", "PAUSED", "ERROR", "TERMINATED", "TIMEOUT"}
BODY = {"name": "mine", "docker_image": "python:1", "idempotency_key": "k"}
RECORD = SandboxRecord.from_json(
    {
        "id": "sb-1",
        "state": "running",
        "image": "python:1",
        "owner": "me",
        "labels": {"k": "v", labels.NAME: "mine", labels.VM: "true", **labels.of_labels(["b", "a c"])},
        "cpu_millicores": {"request": 100, "limit": 1500},
        "memory_bytes": {"request": 2**20, "limit": 2**31},
        "created_at_ms": 1_000,
        "ready_at_ms": 2_000,
        "expires_at_ms": 601_000,
    }
)


def end(cause: str) -> End:
    code = CODES[cause]
    return End(cause, code["fault"], "it is so", 5_000, "somebody", code["mask_sample"])


@pytest.mark.parametrize("code", sorted(CODES))
def test_every_code_has_a_status_and_only_an_end_is_taken_for_one(code: str) -> None:
    error = errors.BY_CODE[code]("it is so")
    refusal, connect = words.as_refusal(error), words.as_connect(error)
    assert 400 <= refusal.status <= 599
    # What clients take for the end of the sandbox.
    assert refusal.status != 409
    assert connect.code != "not_found" or code in {*faults.ENDED, "exec_not_found"}
    for text in (refusal.message, connect.message):
        assert f"[{code}, fault: {error.fault}, mask_sample: {str(error.mask_sample).lower()}]" in text


@pytest.mark.parametrize("name", sorted(ENDS))
def test_every_end_has_a_status_that_clients_know(name: str) -> None:
    told = words.standing("ended", end(ENDS[name]["code"]))
    assert told.status in {"ERROR", "TERMINATED", "TIMEOUT"}
    assert f"[{ENDS[name]['code']}, fault:" in (told.error_message or "")


@pytest.mark.parametrize(
    ("cause", "told"),
    [
        ("oom_killed", ("ERROR", "OOM_KILLED")),
        ("ttl_expired", ("TIMEOUT", "TIMEOUT")),
        ("image_not_found", ("ERROR", "IMAGE_PULL_FAILED")),
        ("image_pull_failed", ("ERROR", "IMAGE_PULL_FAILED")),
        ("deleted", ("TERMINATED", "DELETED")),
        ("idle_expired", ("TERMINATED", "IDLE_EXPIRED")),
        ("node_lost", ("ERROR", "NODE_LOST")),
    ],
)
def test_an_end_is_told_by_the_kind_that_clients_have_a_class_for(cause: str, told: tuple[str, str]) -> None:
    assert words.standing("ended", end(cause))[:2] == told


@pytest.mark.parametrize("state", ["requested", "queued", "starting", "running", "ending", "ended", "warm", "later"])
def test_every_state_is_told_in_a_status_that_clients_know(state: str) -> None:
    assert words.standing(state, None).status in STATUSES


def test_the_ends_of_sandboxes_are_gone_and_other_errors_are_not() -> None:
    told = words.gone(errors.BY_CODE["ttl_expired"]("it is so"))
    assert told is not None
    assert told.body()["error"] == "sandbox_terminated"
    assert words.gone(errors.BY_CODE["file_not_found"]("it is so")) is None


@given(some.text(max_size=60), some.from_regex(r"[a-z][a-z0-9-]{0,30}", fullmatch=True), some.integers(1, 2**40))
def test_a_token_opens_for_its_sandbox_and_until_its_time(key: str, sandbox_id: str, expires: int) -> None:
    tokens, other = Tokens(b"a" * 16), Tokens(b"b" * 16)
    made = tokens.made(sandbox_id, key, expires)
    assert tokens.opened(sandbox_id, made, expires - 1) == (key or None)
    assert tokens.opened(sandbox_id, made, expires) is None
    assert tokens.opened(sandbox_id + "x", made, 0) is None
    assert other.opened(sandbox_id, made, 0) is None


@given(some.text(max_size=200))
def test_what_is_no_token_opens_nothing(text: str) -> None:
    for given_ in (text, "rbx_" + text):
        assert Tokens(b"a" * 16).opened("sb-1", given_, 0) is None


def test_a_create_is_read_with_what_clients_send_by_themselves() -> None:
    sent: dict[str, Any] = {
        **BODY,
        "start_command": "tail -f /dev/null",
        "cpu_cores": 2.0,
        "memory_gb": 0.5,
        "disk_size_gb": 5.0,
        "gpu_count": 0,
        "timeout_minutes": -1,
        "idle_timeout_minutes": 60,
        "environment_vars": {"A": "1"},
        "secrets": {"S": "hidden"},
        "labels": ["b", "a c"],
        "vm": True,
        "arch": "amd64",
        "guaranteed": False,
        "network_access": True,
    }
    wish = creating.wish_of(sent, SETTINGS)
    options = wish.options
    assert (wish.image, wish.checkpoint, wish.start) == ("python:1", None, None)
    assert (options["cpu"], options["memory"], options["ttl"], options["idle_timeout"]) == (2.0, 2**29, 604_800, 3600)
    assert (options["env"], options["egress"], options["node_selector"]) == ({"A": "1", "S": "hidden"}, None, None)
    assert "disk" not in options
    assert "hidden" not in repr(wish)
    kept = dict(options["labels"] or {})
    assert (kept[labels.NAME], kept[labels.VM], labels.labels_of(kept)) == ("mine", "true", ["a c", "b"])


def test_more_minutes_than_there_are_are_all_there_are() -> None:
    # What verifiers 0.3 means by no limit, of a container that has an idle timeout.
    wish = creating.wish_of({**BODY, "timeout_minutes": 43_200, "idle_timeout_minutes": 60}, SETTINGS)
    assert wish.options["ttl"] == 604_800


def test_an_image_that_the_operator_has_another_one_for_keeps_its_name() -> None:
    settings = replace(SETTINGS, images={"python:1": "mirror/python:1.1"})
    wish = creating.wish_of(BODY, settings)
    assert (wish.image, (wish.options["labels"] or {})[labels.IMAGE]) == ("mirror/python:1.1", "python:1")
    made = replace(RECORD, image="mirror/python:1.1", labels={**RECORD.labels, labels.IMAGE: "python:1"})
    assert records.told(made)["dockerImage"] == "python:1"
    assert labels.IMAGE not in (creating.wish_of({**BODY, "docker_image": "b"}, settings).options["labels"] or {})


def test_a_create_asks_for_nodes_sizes_and_a_network_by_what_it_says() -> None:
    more = {"arch": "arm64", "region": "eu", "gpu_type": "H200", "gpu_count": 1, "disk_size_gb": 2, "guaranteed": True}
    given_ = {**BODY, **more, "cpu_cores": 1.0, "memory_gb": 1, "network_allowlist": [], "team_id": "t"}
    wish = creating.wish_of({**given_, "start_command": {"executable": "sh", "args": ["-c", "x"]}}, SETTINGS)
    options = wish.options
    assert options["node_selector"] == {
        "kubernetes.io/arch": "arm64",
        "topology.kubernetes.io/region": "eu",
        "gpu/type": "H200",
    }
    assert (options["cpu"], options["memory"], options["disk"]) == ((1.0, 1.0), (2**30, 2**30), 2**31)
    assert (options["egress"], options["gpu"], wish.start) == ("offline", 1, ["sh", "-c", "x"])
    assert (options["labels"] or {})[labels.TEAM] == "t"


@pytest.mark.parametrize(
    ("more", "status"),
    [
        ({"later": 1}, 400),
        ({"name": None}, 400),
        ({"name": "\n"}, 400),
        ({"docker_image": None}, 400),
        ({"checkpoint_id": "c"}, 400),
        ({"idempotency_key": None}, 400),
        ({"timeout_minutes": 0}, 400),
        ({"timeout_minutes": -2}, 400),
        ({"timeout_minutes": 2**31}, 400),
        ({"timeout_minutes": True}, 400),
        ({"idle_timeout_minutes": 0}, 400),
        ({"cpu_cores": 0}, 400),
        ({"memory_gb": "1"}, 400),
        ({"gpu_count": -1}, 400),
        ({"labels": "a"}, 400),
        ({"labels": [1]}, 400),
        ({"labels": [str(n) for n in range(51)]}, 400),
        ({"environment_vars": []}, 400),
        ({"secrets": {"A": 1}}, 400),
        ({"start_command": {"executable": ""}}, 400),
        ({"start_command": {"executable": "x", "shell": True}}, 400),
        ({"network_allowlist": ["a"], "network_denylist": []}, 400),
        ({"network_denylist": ["http://a"]}, 400),
        ({"vm": "yes"}, 400),
        ({"volumes": [{"name": "v"}]}, 501),
        ({"advanced_configs": {"x": 1}}, 501),
        ({"registry_credentials_id": "r"}, 501),
    ],
)
def test_what_a_create_cannot_have_is_refused(more: dict[str, Any], status: int) -> None:
    with pytest.raises(words.Refusal) as refused:
        creating.wish_of({**BODY, **more}, SETTINGS)
    assert refused.value.status == status


def test_a_type_of_gpu_needs_a_label_of_the_operator() -> None:
    with pytest.raises(words.Refusal, match="--gpu-label"):
        creating.wish_of({**BODY, "gpu_type": "H200"}, Settings(secret=b"s" * 16))


def test_the_same_key_with_another_body_is_another_wish() -> None:
    first, second = (creating.wish_of({**BODY, "labels": [one]}, SETTINGS) for one in "ab")
    assert first.key == second.key
    assert first.digest != second.digest


def policy(allow: Any, deny: Any) -> dict[str, Any]:
    found = network.policy_of(allow, deny)
    assert isinstance(found, EgressPolicy)
    return found.to_json()


def test_lists_become_policies() -> None:
    assert network.policy_of(None, None) is None
    assert policy([], None) == {"mode": "none"}
    assert policy(None, []) == {"mode": "open"}
    assert policy(["Example.org", "*.a.b:443", "10.0.0.1", "10.0.0.0/8:1-9"], None) == {
        "mode": "allow",
        "allow": [
            {"host": "example.org"},
            {"host": "*.a.b", "ports": [443]},
            {"cidr": "10.0.0.1/32", "ports": ["1-65535"]},
            {"cidr": "10.0.0.0/8", "ports": ["1-9"]},
        ],
    }
    assert policy(None, ["8.8.8.8:53"]) == {"mode": "deny", "deny": [{"cidr": "8.8.8.8/32", "ports": [53]}]}


@pytest.mark.parametrize(
    "entry", ["", "a b", "http://a", "a/b", "u@a", "a?x", "a:0", "a:9-1", "a:65536", "*", "a.*.b", "::1", 1]
)
def test_an_entry_that_is_none_is_refused(entry: Any) -> None:
    with pytest.raises(words.Refusal):
        network.policy_of([entry], None)


def test_policies_are_told_as_lists() -> None:
    def told(**rules: Any) -> tuple[Any, Any]:
        return tuple(network.lists_of(EgressState("custom", rules=rules)))  # type: ignore[return-value]

    assert told(mode="offline") == ([], None)
    assert told(mode="open") == (None, [])
    assert told(mode="open", deny=[{"host": None, "cidr": "8.8.8.8/32", "ports": []}]) == (None, ["8.8.8.8/32"])
    allow = [{"host": "a.b", "ports": [443, "80-90"]}, {"cidr": "10.0.0.0/8", "ports": ["1-65535"]}]
    assert told(mode="rules", allow=allow) == (["a.b:443", "a.b:80-90", "10.0.0.0/8"], None)


def test_a_record_is_told_as_a_sandbox() -> None:
    told = records.told(RECORD)
    assert (told["id"], told["name"], told["labels"], told["status"]) == ("sb-1", "mine", ["a c", "b"], "RUNNING")
    assert (told["cpuCores"], told["memoryGB"], told["timeoutMinutes"], told["vm"]) == (1.5, 2.0, 10, True)
    assert (told["createdAt"], told["terminatedAt"]) == ("1970-01-01T00:00:01.000Z", None)
    offline = records.told(replace(RECORD, egress="offline"))
    assert [one["networkAllowlist"] for one in (told, offline)] == [None, []]
    ended = records.told(replace(RECORD, state="ended", end=end("oom_killed")))
    assert (ended["status"], ended["errorType"], ended["terminationReason"]) == ("ERROR", "OOM_KILLED", "oom_killed")


def test_a_list_has_those_that_are_asked_for_the_newest_first() -> None:
    all_ = [replace(RECORD, id=f"sb-{n}", created_at_ms=n) for n in range(5)]
    all_.append(replace(RECORD, id="sb-9", owner="other", state="ended", end=end("deleted")))
    wanted = records.wanted_of({"is_active": "True", "per_page": "2", "page": "2", "user_id": "me"}, ["b"])
    assert wanted.labels == labels.of_labels(["b"])
    told = records.page(records.found(all_, wanted), wanted)
    assert [one["id"] for one in told["sandboxes"]] == ["sb-2", "sb-1"]
    assert (told["total"], told["page"], told["perPage"], told["hasNext"]) == (5, 2, 2, True)
    ended = records.wanted_of({"status": "terminated"}, [])
    assert [one.id for one in records.found(all_, ended)] == ["sb-9"]


@pytest.mark.parametrize(
    "query",
    [{"later": "1"}, {"page": "0"}, {"per_page": "1001"}, {"page": "x"}, {"status": "GONE"}, {"is_active": "maybe"}],
)
def test_a_list_that_cannot_be_is_refused(query: dict[str, str]) -> None:
    with pytest.raises(words.Refusal):
        records.wanted_of(query, [])


def test_a_command_has_the_same_numbers_as_at_e2b() -> None:
    """So that one implementation serves both services; what only one of them has is refused by the other."""
    sent = PROCESS["StartRequest"](process=PROCESS["ProcessConfig"](cmd="sh", args=["-c"], envs={"A": "1"}, cwd="/"))
    read = codec.decoded("proto", SESSION["StartRequest"], sent.SerializeToString())
    assert (read.command.cmd, [*read.command.args], dict(read.command.envs)) == ("sh", ["-c"], {"A": "1"})
    tagged = PROCESS["StartRequest"](tag="x").SerializeToString()
    with pytest.raises(ConnectError, match="no field of the number 3"):
        codec.decoded("proto", SESSION["StartRequest"], tagged)


@given(some.binary(max_size=200), some.sampled_from(sorted(SESSION)))
def test_bytes_are_a_message_or_refused(data: bytes, kind: str) -> None:
    forms: tuple[codec.Codec, ...] = ("json", "proto")
    for form in forms:
        with contextlib.suppress(ConnectError):
            codec.decoded(form, SESSION[kind], data)
