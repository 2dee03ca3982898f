"""What a caller may ask for, and that every limit has a rule that names it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from controlplane.model import Mount, Range, Sandbox, SandboxSpec, State, dump_record, load_record

BAD: list[tuple[str, dict[str, Any]]] = [
    ("image", {"image": ""}),
    ("image", {"image": "has space"}),
    ("image", {"image": "-flag"}),
    ("image", {"image": "a/../../containers/x"}),
    ("image", {"image": "a//b"}),
    ("image", {"image": "a/"}),
    ("image", {"image": "a" * 513}),
    ("image", {"image": 7}),
    ("cpu", {"cpu": 1}),
    ("cpu_millicores", {"cpu_millicores": {"request": 200, "limit": 100}}),
    ("cpu_millicores", {"cpu_millicores": {"request": 1, "limit": 9}}),
    ("request", {"cpu_millicores": {"request": 0, "limit": 100}}),
    ("limit", {"cpu_millicores": {"request": 1}}),
    ("limit", {"memory_bytes": {"request": 1, "limit": "1Gi"}}),
    ("memory_bytes", {"memory_bytes": {"request": 1, "limit": 1024}}),
    ("pids_limit", {"pids_limit": 7}),
    ("pids_limit", {"pids_limit": True}),
    ("disk_bytes", {"disk_bytes": 1}),
    ("disk_bytes", {"disk_bytes": "2Gi"}),
    ("gpu", {"gpu": 17}),
    ("gpu", {"gpu": -1}),
    ("pull", {"pull": "quick"}),
    ("network", {"network": "Two Words"}),
    ("node_selector", {"node_selector": {"": "x"}}),
    ("node_selector", {"node_selector": {"a/b/c": "x"}}),
    ("node_selector", {"node_selector": {"a": "two words"}}),
    ("node_selector", {"node_selector": {"a": "x\n"}}),
    ("node_selector", {"node_selector": {f"k{n}": "" for n in range(17)}}),
    ("env", {"env": {"A=B": "x"}}),
    ("env", {"env": {"": "x"}}),
    ("env", {"env": {"A": "x\0"}}),
    ("env", {"env": {"A": "x" * 300_000}}),
    ("cwd", {"cwd": "relative"}),
    ("cwd", {"cwd": "/a\0b"}),
    ("cwd", {"cwd": "/\ud800"}),
    ("env", {"env": {"A": "\ud800"}}),
    ("labels", {"labels": {"a": "\ud800"}}),
    ("user", {"user": "\ud800"}),
    ("user", {"user": "a b"}),
    ("user", {"user": "a:b:c"}),
    ("labels", {"labels": {"-a": "x"}}),
    ("labels", {"labels": {"a": "x\n"}}),
    ("labels", {"labels": {f"k{n}": "" for n in range(65)}}),
    ("labels", {"labels": {"a": "x" * 257}}),
    ("labels", {"labels": {"a": "x" * 10_000}}),
    ("labels", {"labels": {"k" * 129: ""}}),
    ("labels", {"labels": {"k" * 10_000: ""}}),
    ("labels", {"labels": {"a=b": ""}}),
    ("ttl_ms", {"ttl_ms": 999}),
    ("ttl_ms", {"ttl_ms": 8 * 24 * 3_600_000}),
    ("start_timeout_ms", {"start_timeout_ms": 0}),
]


@pytest.mark.parametrize(("field", "change"), BAD, ids=lambda value: str(value)[:60])
def test_a_bad_value_is_refused_by_name(field: str, change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as caught:
        SandboxSpec.model_validate({"image": "a", **change})
    assert field in [str(part) for part in caught.value.errors()[0]["loc"]]


def test_as_many_labels_as_there_may_be_of_the_largest_size() -> None:
    labels = {f"{n:03}" + "k" * 125: "x" * 256 for n in range(64)}
    spec = SandboxSpec(image="a", labels=labels)
    assert spec.labels == labels
    text = dump_record(Sandbox("sb-1", "alice", spec, 1, 2, spec.fingerprint()))
    # Kubernetes takes 256 KiB of annotations in all.
    assert len(text.encode()) < 128 * 1024
    read = load_record(text)
    assert read is not None
    assert read.spec.labels == labels


NAMES = ["a", "python:3.12-slim", "localhost:5000/a/b@sha256:" + "0" * 64, "registry.example.com/x/y:1"]


@pytest.mark.parametrize("image", NAMES)
def test_names_of_images_are_taken(image: str) -> None:
    assert SandboxSpec(image=image).image == image


@given(st.permutations(["a", "b", "c"]))
def test_the_order_of_names_does_not_change_the_fingerprint(order: list[str]) -> None:
    spec = SandboxSpec(image="i", env=dict.fromkeys(order, "1"), labels=dict.fromkeys(order, "2"))
    assert (
        spec.fingerprint()
        == SandboxSpec(image="i", env=dict.fromkeys("abc", "1"), labels=dict.fromkeys("abc", "2")).fingerprint()
    )


def test_every_field_changes_the_fingerprint() -> None:
    base = SandboxSpec(image="i")
    changes: dict[str, Any] = {
        "image": "j",
        "cpu_millicores": Range(request=1, limit=10),
        "memory_bytes": Range(request=1, limit=1 << 30),
        "pids_limit": 9,
        "disk_bytes": 1 << 30,
        "gpu": 1,
        "node_selector": {"zone": "a"},
        "pull": "lazy",
        "network": "broker",
        "mounts": {"/data": Mount(dataset="d")},
        "env": {"A": "B"},
        "cwd": "/",
        "make_cwd": True,
        "user": "u",
        "labels": {"l": "m"},
        "ttl_ms": 5_000,
        "start_timeout_ms": 500,
        "idle_timeout_ms": 5_000,
        "settings_digest": "d" * 64,
        "egress": "packages",
    }
    # Whose client asks is no part of what is asked for.
    assert changes.keys() | {"lease"} == SandboxSpec.model_fields.keys()
    prints = {base.model_copy(update={name: value}).fingerprint() for name, value in changes.items()}
    assert len(prints | {base.fingerprint()}) == len(changes) + 1


def test_how_an_image_is_pulled_is_written_only_where_it_was_asked_for() -> None:
    # A replica of an older version reads the spec of every record, and has the same hashes for its pools.
    assert "pull" not in SandboxSpec(image="i").model_dump()
    assert SandboxSpec(image="i", pull="full").model_dump()["pull"] == "full"


def test_a_warm_sandbox_of_another_network_serves_no_create() -> None:
    plain, direct = SandboxSpec(image="i"), SandboxSpec(image="i", network="broker")
    assert "network" not in plain.model_dump()
    assert plain.template_hash() != direct.template_hash()


def test_a_directory_to_make_is_named_and_written_only_where_it_was_asked_for() -> None:
    # A replica of an older version reads the spec of every record.
    assert "make_cwd" not in SandboxSpec(image="i", cwd="/repo").model_dump()
    assert SandboxSpec(image="i", cwd="/repo", make_cwd=True).model_dump()["make_cwd"] is True
    with pytest.raises(ValueError, match="without cwd"):
        SandboxSpec(image="i", make_cwd=True)


def test_settings_come_by_value_or_as_a_digest() -> None:
    SandboxSpec(image="i", settings_digest="0" * 64)
    for wrong in ({"settings_digest": "0"}, {"settings_digest": "0" * 64, "env": {"A": "1"}}):
        with pytest.raises(ValueError, match="settings_digest"):
            SandboxSpec(image="i", **wrong)
    # A replica of an older version reads the spec of every record.
    assert "settings_digest" not in SandboxSpec(image="i", settings_digest="0" * 64).model_dump()


def test_a_record_comes_back_without_the_environment() -> None:
    spec = SandboxSpec(image="i", env={"SECRET": "x"}, labels={"l": "m"})
    sandbox = Sandbox("sb-1", "alice", spec, 1, 2, spec.fingerprint(), idempotency_key="k")
    text = dump_record(sandbox)
    assert "SECRET" not in text
    read = load_record(text)
    assert read is not None
    assert read.state is State.STARTING
    assert (read.id, read.owner, read.fingerprint, read.idempotency_key) == ("sb-1", "alice", spec.fingerprint(), "k")
    assert read.spec == spec.model_copy(update={"env": {}})


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"spec": {}}', '{"spec": {"image": "a"}}', "not json"])
def test_a_damaged_record_is_none(text: str) -> None:
    assert load_record(text) is None
