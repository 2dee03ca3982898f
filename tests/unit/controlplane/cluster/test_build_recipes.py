"""What an engine's builder is given of a Dockerfile: nothing whose source is not known, and what was judged."""

from __future__ import annotations

import io
import json
import tarfile

import pytest

from controlplane.cluster.dockerfiles import context
from controlplane.cluster.dockerfiles.bounds import MOST_LOG_BYTES
from controlplane.cluster.dockerfiles.recipe import Recipe, recipe
from controlplane.cluster.engine.build import holder
from controlplane.cluster.engine.build.output import Output
from controlplane.errors import Problem

ID = "f" * 64


def read(text: str, target: str = "", owner: str = "me", **arguments: str) -> Recipe:
    return recipe(text, arguments, target, owner=owner, platform="linux/amd64")


def lines(text: str, **arguments: str) -> list[str]:
    found = read(text, **arguments)
    return found.pinned(dict.fromkeys(found.images, ID)).splitlines()


def refused(text: str, target: str = "") -> Problem:
    with pytest.raises(Problem) as caught:
        read(text, target)
    return caught.value


def test_each_instruction_is_one_line_and_images_are_ids() -> None:
    text = """\ufeff# syntax=docker/dockerfile:1
    # a comment
    arg VERSION=3.12
    FROM --platform=$BUILDPLATFORM python:${VERSION}-slim AS Base
    RUN one && \\
      # a comment within

      two \\\t
      three
    ENV A=b\\
c

    FROM base
    COPY --link --chown=1:2 --from=0 /a /b
    COPY --from=Base /a /b
    COPY --chmod=700 --from=alpine:3 /a /b
    """
    assert lines(text) == [
        "ARG VERSION=3.12",
        f"FROM {ID} AS base",
        "RUN one &&       two       three",
        "ENV A=bc",
        "FROM base",
        "COPY --chown=1:2 --from=0 /a /b",
        "COPY --from=base /a /b",
        f"COPY --chmod=700 --from={ID} /a /b",
    ]
    assert read(text).images == ["python:3.12-slim", "alpine:3"]
    assert read(text, VERSION="3.11").images == ["python:3.11-slim", "alpine:3"]


@pytest.mark.parametrize(
    ("before", "name", "image"),
    [
        ("", "a:${T:-1}", "a:1"),
        ("ARG T", "a:${T:-1}", "a:1"),
        ("ARG T=2", "a:${T:-1}", "a:2"),
        ("ARG T=2 U='$T'", "a${T:+:x}", "a:x"),
        ('ARG R="reg.example/x"\nARG I=$R/y', "${I}:1", "reg.example/x/y:1"),
        ("ARG T=2\nARG T", "a:$T", "a:2"),
    ],
)
def test_variables_of_a_base_are_those_before_the_first_from(before: str, name: str, image: str) -> None:
    assert read(f"{before}\nFROM {name}").images == [image]


@pytest.mark.parametrize(
    "line",
    [
        "ADD https://example.com/x /x",
        "ADD HTTP://example.com/x /x",
        'ADD ["https://example.com/x", "/x"]',
        "ADD git@example.com:a/b /x",
        "ADD github.com/a/b /x",
        "ADD file:///etc/passwd /x",
        "ADD ht\\tp://x /x",
        'ADD h"ttp"://x /x',
        "ADD $URL /x",
        'ADD ["$URL", "/x"]',
        "ADD a https://example.com/x /x",
        "COPY --from=$X /a /b",
        "RUN --mount=type=bind,from=alpine,target=/a x",
        "RUN --mount=type=bind,from=base,target=/a x",
        "RUN --mount=type=ssh x",
        "RUN --mount=type=cache,target=/a,from=alpine x",
        "RUN --security=insecure x",
        "RUN --network=host x",
        "RUN <<EOF\n#!/usr/bin/env python3\nEOF",
        "COPY <<EOF /x",
        "ADD <<EOF /x",
        "ONBUILD ADD http://example.com/x /x",
        "FROM --platform=linux/arm64 alpine",
        "FROM --platform=windows/amd64 alpine",
    ],
)
def test_what_the_builder_must_not_do_is_refused_by_line(line: str) -> None:
    problem = refused(f"FROM alpine AS base\n{line}\n")
    assert (problem.code, problem.details["line"]) == ("unsupported", "2")


@pytest.mark.parametrize(
    "line",
    [
        'COPY --fr"om"=alpine /a /b',
        "COPY --from=al\\pine /a /b",
        "COPY --from=a --from=b /a /b",
        "COPY\u00a0--from=alpine /a /b",
        "COPY \u2003--from=alpine /a /b",
        "ADD --from=alpine /a /b",
        "RUN --mount='type=bind' x",
        "RUN --mount=type=bind,source=../../etc,target=/a x",
        "RUN --mount=type=cache,target=/a,target=/b x",
        "RUN --mount=type=cache,target=$A x",
        "RUN --network=none",
        "RUN <<EOF\nFROM b",
        "RUN <<EOF.x\nEOF.x",
        "SHELL bash",
        "RUN x \\\\",
        "RUN x\0y",
        "FRM x",
        "RUN",
        "FROM a b",
        "FROM a AS 0",
        "FROM a AS scratch",
        "FROM $NOTHING",
        "FROM a:${T-x}",
        'FROM "a"',
    ],
)
def test_what_readers_may_differ_about_is_refused_by_line(line: str) -> None:
    problem = refused(f"FROM alpine AS base\n{line}\n")
    assert (problem.code, problem.details["line"]) == ("invalid_argument", "2")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "invalid_argument"),
        ("# nothing", "invalid_argument"),
        ("RUN x\nFROM a", "invalid_argument"),
        ("ARG A=1", "invalid_argument"),
        ("# escape=`\nFROM a", "unsupported"),
        ("FROM a\n" * 129, "unsupported"),
        ("FROM a\n" + "RUN x\n" * 1000, "payload_too_large"),
        ("FROM a\nRUN " + "x" * (256 << 10), "payload_too_large"),
    ],
)
def test_a_text_that_is_none_or_too_much_is_refused(text: str, code: str) -> None:
    assert refused(text).code == code


def test_a_document_inline_is_a_script_of_the_stages_shell() -> None:
    text = """
FROM a AS one
RUN <<EOF
set -e \\
FROM b
# no comment

EOF
RUN --mount=type=tmpfs,target=/t cat <<'A' > /a && cat <<-B > /b
\t$x
A
\ty
\tB
SHELL ["/bin/bash", "-c"]
RUN <<-EOF
\techo x
\tEOF
RUN cat <<< word
FROM one
RUN <<EOF
echo "ü"
EOF
FROM a
RUN <<EOF
EOF
"""
    both = "cat <<'A' > /a && cat <<-B > /b\n\t$x\nA\n\ty\n\tB\n"
    assert lines(text)[1:] == [
        r'RUN ["/bin/sh", "-c", "set -e \\\nFROM b\n# no comment\n"]',
        f"RUN --mount=type=tmpfs,target=/t {json.dumps(['/bin/sh', '-c', both])}",
        'SHELL ["/bin/bash", "-c"]',
        'RUN ["/bin/bash", "-c", "echo x"]',
        "RUN cat <<< word",
        "FROM one",
        r"""RUN ["/bin/bash", "-c", "echo \"\u00fc\""]""",
        f"FROM {ID}",
        'RUN ["/bin/sh", "-c", ""]',
    ]
    assert read(text).images == ["a"]


def test_a_step_without_network_is_known() -> None:
    assert [read(f"FROM a\nRUN --network={one} x").is_closed for one in ("none", "default")] == [True, False]


def test_a_hundred_stages_are_read() -> None:
    text = "FROM a AS s0\n" + "".join(f"FROM s{one} AS s{one + 1}\nRUN x\n" for one in range(99))
    assert len(read(text, "s99").stages) == 100
    assert "there is no stage 's100'" in refused(text, "s100").detail


def test_a_name_that_is_no_earlier_stage_is_an_image() -> None:
    assert read("FROM later AS a\nFROM b AS later\nCOPY --from=7 /a /b").images == ["later", "b", "7"]


def test_a_cache_is_its_owners() -> None:
    def options(owner: str, told: str) -> str:
        return read(f"FROM a\nRUN --mount={told} x", owner=owner).steps[1].text

    mine = options("me", "type=cache,target=/c")
    assert mine == options("me", "type=cache,dst=/c").replace("dst", "target")
    assert mine != options("you", "type=cache,target=/c")
    assert options("me", "type=cache,target=/c,id=../../x").count("..") == 0
    assert options("me", "type=secret,id=t,required") == "RUN --mount=type=secret,id=t,required=true x"


def entry(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", size: int = 0) -> io.BytesIO:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        one = tarfile.TarInfo(name)
        one.type, one.linkname, one.size = kind, link, size
        archive.addfile(one, io.BytesIO(bytes(size)))
    return file


@pytest.mark.parametrize(
    "file",
    [
        entry("/etc/x"),
        entry("../x"),
        entry("a/../../x"),
        entry("x", tarfile.SYMTYPE, "/etc"),
        entry("a/x", tarfile.SYMTYPE, "../../etc"),
        entry("x", tarfile.LNKTYPE, "y"),
        entry("x", tarfile.CHRTYPE),
        entry("x", tarfile.FIFOTYPE),
        io.BytesIO(b"no archive" * 100),
    ],
)
def test_an_archive_of_a_stranger_is_checked(file: io.BytesIO) -> None:
    with pytest.raises(Problem) as caught:
        context.check(file)
    assert caught.value.code == "invalid_argument"


def test_a_context_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    context.check(entry("x", size=100))
    monkeypatch.setattr(context, "MOST_BYTES", 99)
    with pytest.raises(Problem, match="at most") as caught:
        context.check(entry("x", size=100))
    assert (caught.value.code, caught.value.details["reason"]) == ("payload_too_large", "context_too_large")


def test_the_words_of_a_builder_are_bounded_and_its_end_is_typed() -> None:
    output = Output()
    assert output.take({"stream": "--> 0123456789a\n"}) == "--> 0123456789a\n"
    assert len(output.take({"stream": "x" * (MOST_LOG_BYTES + 1)})) < MOST_LOG_BYTES + 100
    assert output.take({"stream": "more"}) == ""
    assert output.steps == ["0123456789a"]
    output.take({"aux": {"ID": f"sha256:{ID}"}})
    output.check()
    assert output.image == ID
    for error, code in (
        ('building at STEP "RUN false": exit status 1', "build_failed"),
        ("committing container: image not known", "internal"),
        ("write: no space left on device", "capacity_unavailable"),
    ):
        output.again()
        output.take({"error": error})
        assert output.failed_by_itself == (code == "internal")
        with pytest.raises(Problem) as caught:
            output.check()
        assert caught.value.code == code


@pytest.mark.parametrize(
    ("groups", "parent"),
    [
        ("8:pids:/parent/one\n1:cpu:/parent/one\n", "/parent/one/build"),
        ("0::/parent/one\n", "/parent/one/build"),
        ("0::/machine.slice/one.scope\n", None),
        ("0::/\n", None),
    ],
)
def test_steps_are_below_the_group_of_the_holder(groups: str, parent: str | None) -> None:
    query = holder.Inside("one", 7, groups).query
    assert query.get("cgroupparent") == parent
    assert '"/proc/7/ns/net"' in str(query["nsoptions"])
    assert query["networkmode"] == "NetworkDisabled"
