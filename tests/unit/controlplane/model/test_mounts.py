"""Where something may be mounted, and what of the rest is refused by name."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from controlplane.model import Sandbox, SandboxSpec, dump_record, load_record, scratch_key
from controlplane.model.dataset import DatasetSpec
from controlplane.model.mounts import MOST_MOUNTS, Mount, checked, path_trouble
from controlplane.model.pool import PoolSpec

DATA = {"dataset": "imagenet-mini"}
PARTS = st.text("ab._-", min_size=1, max_size=3).filter(lambda part: part not in (".", ".."))
PATHS = st.lists(PARTS, min_size=1, max_size=4).map(lambda parts: "/" + "/".join(parts))
REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("absolute", {"data": DATA}),
    ("absolute", {"": DATA}),
    ("root", {"/": DATA}),
    ("shortest|without", {"/data/": DATA}),
    ("without", {"//data": DATA}),
    ("without", {"/data/../etc/x": DATA}),
    ("without", {"/data/.": DATA}),
    ("without", {"/a:b": DATA}),
    ("without", {"/two words": DATA}),
    ("without", {"/new\nline": DATA}),
    ("/proc", {"/proc": DATA}),
    ("/proc", {"/proc/1/root": DATA}),
    ("/sys", {"/sys/fs/cgroup": DATA}),
    ("/dev", {"/dev/shm/x": DATA}),
    ("/.rollbox", {"/.rollbox": DATA}),
    ("every container", {"/etc": DATA}),
    ("every container", {"/etc/hosts": DATA}),
    ("every container", {"/run": DATA}),
    ("characters", {"/" + "a" * 255: DATA}),
    ("'/data/x' is in '/data'", {"/data": DATA, "/data/x": DATA}),
    ("'/a/b/c' is in '/a'", {"/a/b/c": DATA, "/a": DATA, "/ab": DATA}),
    (f"17 mounts are more than {MOST_MOUNTS}", {f"/m{n}": DATA for n in range(17)}),
    ("either dataset or scratch", {"/data": {}}),
    ("either dataset or scratch", {"/data": {"dataset": "a", "scratch": "b"}}),
    ("dataset", {"/data": {"dataset": "Two Words"}}),
    ("dataset", {"/data": {"dataset": "a" * 64}}),
    ("scratch", {"/data": {"scratch": "../x"}}),
    ("its own size", {"/data": {"dataset": "a", "size_bytes": 1 << 20}}),
    ("less than", {"/data": {"scratch": "a", "size_bytes": 1}}),
    ("size_bytes", {"/data": {"scratch": "a", "size_bytes": 1 << 40}}),
    ("size_bytes", {"/data": {"scratch": "a", "size_bytes": "1Gi"}}),
    ("two sizes", {"/a": {"scratch": "s"}, "/b": {"scratch": "s", "size_bytes": 1 << 20}}),
    ("read_only", {"/data": {**DATA, "read_only": False}}),
]


@pytest.mark.parametrize(("why", "mounts"), REFUSED)
def test_what_cannot_be_mounted_is_refused_with_the_reason(why: str, mounts: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=why):
        SandboxSpec.model_validate({"image": "i", "mounts": mounts})


def test_what_may_be_mounted() -> None:
    mounts = {"/data": DATA, "/data-2": DATA, "/etc/models": DATA, "/home/u/.cache": {"scratch": "cache"}}
    spec = SandboxSpec.model_validate({"image": "i", "mounts": mounts})
    assert spec.model_dump(mode="json")["mounts"] == mounts
    assert spec.mounts["/home/u/.cache"].scratch_bytes == 1 << 30
    assert [one.words for one in spec.mounts.values()][2:] == ["data set imagenet-mini", "scratch cache"]


@given(st.lists(PATHS, max_size=6, unique=True))
def test_mounts_are_taken_exactly_if_none_is_in_another_one(paths: list[str]) -> None:
    nested = any(inner.startswith(f"{outer}/") for outer in paths for inner in paths)
    mounts = {path: Mount(dataset="d") for path in paths}
    if nested:
        with pytest.raises(ValueError, match="may not be in one another"):
            checked(mounts)
    else:
        assert checked(mounts) == mounts


@given(st.text(max_size=40))
def test_a_path_is_refused_or_means_itself(path: str) -> None:
    if not path_trouble(path):
        parts = path.split("/")
        assert parts[0] == ""
        assert all(parts[1:])
        assert not {".", ".."} & {*parts}
        assert path.isascii()
        assert not {*path} & set(" :\\\"'$\n\0")
        assert parts[1] not in ("proc", "sys", "dev", ".rollbox")


@given(st.tuples(*[st.text("ab:1", max_size=4)] * 3), st.tuples(*[st.text("ab:1", max_size=4)] * 3))
def test_two_scratches_have_one_key_only_if_owner_group_and_name_are_the_same(
    one: tuple[str, str, str], other: tuple[str, str, str]
) -> None:
    assert (scratch_key(*one) == scratch_key(*other)) == (one == other)


def test_mounts_are_of_the_template_whatever_their_order() -> None:
    # A replica of an older version reads the spec of every record, and has the same hashes for its pools.
    plain = SandboxSpec(image="i")
    assert "mounts" not in plain.model_dump()
    two = {"/a": Mount(dataset="x"), "/b": Mount(dataset="y")}
    one, turned = SandboxSpec(image="i", mounts=two), SandboxSpec(image="i", mounts=dict(reversed(two.items())))
    assert one.template_hash() == turned.template_hash() != plain.template_hash()
    assert one.fingerprint() == turned.fingerprint() != plain.fingerprint()
    swapped = SandboxSpec(image="i", mounts={"/a": Mount(dataset="y"), "/b": Mount(dataset="x")})
    assert swapped.template_hash() != one.template_hash()
    assert one.template().mounts == two


def test_a_record_keeps_its_mounts() -> None:
    mounts = {"/a": Mount(dataset="x"), "/b": Mount(scratch="y", size_bytes=1 << 21)}
    spec = SandboxSpec(image="i", mounts=mounts)
    kept = Sandbox("sb-1", "alice", spec, created_at_ms=1, expires_at_ms=2, fingerprint=spec.fingerprint())
    read = load_record(dump_record(kept))
    assert read is not None
    assert read.spec.mounts == mounts


def test_a_pool_has_data_sets_and_no_scratch() -> None:
    template = {"image": "i", "mounts": {"/data": DATA}}
    assert PoolSpec.model_validate({"template": template, "max_warm": 1}).spec().mounts["/data"].dataset
    with pytest.raises(ValidationError, match="/cache: a scratch is an owner's"):
        PoolSpec.model_validate({"template": {"image": "i", "mounts": {"/cache": {"scratch": "s"}}}, "max_warm": 1})


@pytest.mark.parametrize(
    ("why", "body"),
    [
        ("give one of", {}),
        ("give one of", {"folder": "/a", "claim": "b"}),
        ("absolute", {"folder": "a"}),
        ("absolute", {"folder": "/a/../b"}),
        ("absolute", {"folder": "/a/"}),
        ("claim", {"claim": "Upper"}),
        ("image", {"image": "a b"}),
        ("owners", {"folder": "/a", "owners": ["pool:x"]}),
        ("owners", {"folder": "/a", "owners": [""]}),
        ("read_write", {"folder": "/a", "read_write": True}),
    ],
)
def test_a_declaration_that_is_not_sound_is_refused(why: str, body: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=why):
        DatasetSpec.model_validate(body)


def test_a_data_set_is_for_its_owners_or_for_everybody() -> None:
    everybody, alices = DatasetSpec(folder="/a"), DatasetSpec(claim="c", owners=["alice"])
    assert [everybody.allows("bob"), alices.allows("bob"), alices.allows("alice")] == [True, False, True]
    assert [everybody.source, alices.source] == ["folder /a", "claim c"]
