"""What Docker's bridge makes of a build: its query, and the archive of its context, whoever has written that."""

from __future__ import annotations

import contextlib
import io
import stat
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import make_mocked_request
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from yarl import URL

from rollbox_bridges.docker import building, contexts, dockerfiles, references
from rollbox_bridges.docker.asking import Query
from rollbox_bridges.docker.words import Refusal

Entry = tuple[str, bytes, dict[str, Any]]


def wish(**query: Any) -> building.BuildWish:
    """What a query asks for."""
    request = make_mocked_request("POST", str(URL("/build").with_query(query)))
    return building.build_of(Query(request, building.KNOWN, building.HARMLESS, building.REASONS))


def test_what_clients_always_say_asks_for_nothing() -> None:
    of_command_line = {"memory": 0, "memswap": 0, "ulimits": "null", "labels": "{}", "cachefrom": "[]", "shmsize": 0}
    of_sdk = {"q": "False", "nocache": "False", "rm": "True", "pull": "False", "forcerm": "1", "networkmode": "default"}
    assert wish(**of_command_line, **of_sdk, version=1, buildargs="{}") == building.BuildWish()


def test_a_query_is_read() -> None:
    args = '{"A": "1", "UNSET": null}'
    found = wish(t=["a:1", "b", "a:1"], dockerfile="/sub/./File", buildargs=args, target="s", networkmode="none", q=1)
    assert found == building.BuildWish(
        dockerfile="sub/File", tags=("a:1", "b:latest"), args={"A": "1"}, target="s", offline=True, quiet=True
    )


@pytest.mark.parametrize(
    ("query", "says"),
    [
        *(({name: "1"}, f"{name}=1 is not supported") for name in building.REASONS),
        ({"version": "2"}, "BuildKit is not spoken"),
        ({"future": "1"}, "would ignore it"),
        ({"networkmode": "host"}, "network 'host'"),
        ({"platform": "linux/s390x"}, "platform 'linux/s390x'"),
        ({"dockerfile": "../Dockerfile"}, "Forbidden path outside the build context"),
        ({"t": "A B"}, "invalid reference format"),
        ({"t": "a@sha256:0"}, "invalid reference format"),
        ({"buildargs": "["}, "buildargs is no JSON"),
        ({"buildargs": "[1]"}, "buildargs is not an object"),
        ({"buildargs": '{"a": 1}'}, "is not text"),
        ({"labels": '["a"]'}, "is not an object of texts"),
        ({"labels": '{"a": "1"}', "target": "s"}, "write LABEL in its stage"),
        ({"labels": '{"a": "1\\nRUN x"}'}, "a line break"),
        ({"labels": '{"": "1"}'}, "has no name"),
    ],
)
def test_what_is_not_honoured_is_refused_by_name(query: dict[str, Any], says: str) -> None:
    with pytest.raises(Refusal) as refused:
        wish(**query)
    assert (refused.value.status, says in refused.value.message) == (400, True)


@given(some.text(max_size=30))
def test_any_name_is_taken_as_docker_shows_it_or_refused(text: str) -> None:
    with contextlib.suppress(Refusal):
        assert references.tag_of(text).startswith(references.familiar(text).partition(":")[0])
    with contextlib.suppress(Refusal):
        assert ".." not in building.path_of(text).split("/")


def test_images_of_the_bridge_have_the_platforms_names_in_a_dockerfile() -> None:
    text = """ARG BASE=mine
ARG OTHER=x:1
FROM mine AS base
FROM --platform=linux/amd64 ${BASE} as Two
FROM base
FROM $OTHER
FROM x:$TAG
COPY --from=mine /a /b
COPY --from=two /a /b
COPY --from=0 /a /b
RUN --mount=type=bind,from=mine,target=/m <<END
FROM mine
END
RUN echo --from=mine
# FROM mine
"""
    source = {"mine": "theirs@1", "base": "wrong", "two": "wrong", "0": "wrong", "other:1": "theirs@2"}
    found, args = dockerfiles.mapped(text, {"OTHER": "other:1", "WORD": "mine"}, lambda one: source.get(one, one))
    assert args == {"OTHER": "theirs@2", "WORD": "mine", "BASE": "theirs@1"}
    changed = {"FROM mine AS base": "FROM theirs@1 AS base", "COPY --from=mine /a /b": "COPY --from=theirs@1 /a /b"}
    inline = "RUN --mount=type=bind,from={},target=/m <<END"
    changed[inline.format("mine")] = inline.format("theirs@1")
    assert found.split("\n") == [changed.get(line, line) for line in text.split("\n")]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("FROM a\n", 'FROM a\nLABEL "of"="a \\"\\$x\\" \\\\ `"\n'),
        ("FROM a\nRUN b \\\n", 'FROM a\nRUN b \nLABEL "of"="a \\"\\$x\\" \\\\ `"\n'),
        ("# syntax=b\n# Escape=`\nFROM a", '# syntax=b\n# Escape=`\nFROM a\nLABEL "of"="a `"`$x`" \\ ``"\n'),
    ],
)
def test_labels_of_a_build_are_those_of_the_last_stage(text: str, wanted: str) -> None:
    assert dockerfiles.labelled(text, {"of": 'a "$x" \\ `'}) == wanted
    assert dockerfiles.labelled(text, {}) == text


def archive(entries: Iterable[Entry], form: int = tarfile.GNU_FORMAT) -> io.BytesIO:
    """An archive of entries."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=form) as opened:
        for name, data, fields in entries:
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            for field, value in fields.items():
                setattr(entry, field, value)
            opened.addfile(entry, io.BytesIO(data))
    return made


def names(folder: Path) -> list[str]:
    """What is in a folder."""
    return [one.name for one in folder.iterdir()]


def link(to: str, kind: bytes = tarfile.SYMTYPE) -> dict[str, Any]:
    """Fields of a link."""
    return {"type": kind, "linkname": to}


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT])
def test_a_context_is_unpacked(tmp_path: Path, form: int) -> None:
    long = f"{'d' * 90}/{'e' * 90}"
    entries: list[Entry] = [
        ("./", b"", {"type": tarfile.DIRTYPE}),
        ("to", b"", link("a/b")),
        ("a/", b"", {"type": tarfile.DIRTYPE}),
        ("a/b", b"first", {}),
        ("a/b", b"again", {"mode": 0o4755, "uid": 1234}),
        ("same", b"", link("./a/b", tarfile.LNKTYPE)),
        (long, b"long", {}),
    ]
    contexts.unpack(archive(entries, form), tmp_path, frozenset())
    assert (tmp_path / "a/b").read_bytes() == (tmp_path / "same").read_bytes() == b"again"
    assert stat.S_IMODE((tmp_path / "a/b").stat().st_mode) == 0o4755
    assert ((tmp_path / "to").readlink(), (tmp_path / long).read_bytes()) == (Path("a/b"), b"long")


@pytest.mark.parametrize(
    ("entries", "says"),
    [
        ([("../out", b"x", {})], "leads out"),
        ([("a", b"", link("/")), ("a/out", b"x", {})], "is below"),
        ([("a", b"x", {}), ("a/b", b"x", {})], "is below"),
        ([("same", b"", link("/etc/passwd", tarfile.LNKTYPE))], "another name"),
        ([("l", b"", link("/etc/passwd")), ("same", b"", link("l", tarfile.LNKTYPE))], "another name"),
        ([("pipe", b"", {"type": tarfile.FIFOTYPE})], "no file, folder or link"),
        ([("device", b"", {"type": tarfile.CHRTYPE})], "no file, folder or link"),
        ([("Dockerfile", b"", link("/etc/passwd"))], "is no file"),
        ([("x" * 300, b"x", {})], "cannot be unpacked"),
        ([("x/" * 40_000, b"x", {})], "has a head of"),
    ],
)
def test_what_no_context_may_have_is_refused_and_nothing_is_outside(
    tmp_path: Path, entries: list[Entry], says: str
) -> None:
    inside = tmp_path / "context"
    inside.mkdir()
    with pytest.raises(Refusal) as refused:
        contexts.unpack(archive(entries), inside, frozenset({"Dockerfile"}))
    assert (refused.value.status, says in refused.value.message) == (400, True)
    assert names(tmp_path) == ["context"]


@pytest.mark.parametrize("data", [b"", b"no archive" * 100, b"\0" * 1024, b"x" * 511])
def test_what_is_no_archive_is_refused_or_empty(tmp_path: Path, data: bytes) -> None:
    with contextlib.suppress(Refusal):
        contexts.unpack(io.BytesIO(data), tmp_path, frozenset())
    assert names(tmp_path) == []


def test_a_context_over_its_limits_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contexts, "_MOST_FILES", 3)
    monkeypatch.setattr(contexts, "MOST_BYTES", 10)
    many: list[Entry] = [(str(one), b"", {}) for one in range(4)]
    large: list[Entry] = [("a", b"x" * 11, {})]
    for entries in (many, large):
        with pytest.raises(Refusal) as refused:
            contexts.unpack(archive(entries), tmp_path, frozenset())
        assert refused.value.status == 413
    assert names(tmp_path) == []


SOUND = archive([("a/b", b"text", {}), ("l", b"", link("a/b")), ("é" * 60, b"x", {})], tarfile.PAX_FORMAT).getvalue()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300, deadline=None)
@given(
    some.lists(some.tuples(some.integers(0, len(SOUND) - 1), some.integers(0, 255)), max_size=6), some.integers(0, 4096)
)
def test_an_archive_that_was_changed_anywhere_is_unpacked_or_refused(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int]], cut: int
) -> None:
    data = bytearray(SOUND)
    for at, byte in changes:
        data[at] = byte
    outside = tmp_path_factory.mktemp("outside")
    inside = outside / "context"
    inside.mkdir()
    with contextlib.suppress(Refusal):
        contexts.unpack(io.BytesIO(bytes(data[: len(data) - cut])), inside, frozenset())
    assert names(outside) == ["context"]
