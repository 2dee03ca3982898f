"""What an engine's builder is given of a Dockerfile: nothing whose source is not known, and what was judged."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from controlplane.cluster.dockerfiles import context
from controlplane.cluster.dockerfiles.bounds import MOST_LOG_BYTES
from controlplane.cluster.dockerfiles.judge import Base
from controlplane.cluster.dockerfiles.recipe import Recipe, recipe
from controlplane.cluster.engine.build import bases, holder
from controlplane.cluster.engine.build.output import Output
from controlplane.errors import Problem

ID = "f" * 64


def read(
    text: str, target: str = "", owner: str = "me", bases: Mapping[str, Base] | None = None, **arguments: str
) -> Recipe:
    return recipe(text, arguments, target, owner=owner, platform="linux/amd64", bases=bases)


def lines(text: str, bases: Mapping[str, Base] | None = None, **arguments: str) -> list[str]:
    found = read(text, bases=bases, **arguments)
    return found.pinned({**dict.fromkeys(found.images, ID), "": "FILES"}).splitlines()


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
        "FROM base AS rollbox-1",
        "COPY --chown=1:2 --from=base /a /b",
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
        "ADD https://example.com/a.git /x",
        "ADD https://example.com/a.git#main /x",
        "ADD https://me:word@example.com/x /x",
        "ADD git@example.com:a/b /x",
        "ADD github.com/a/b /x",
        "ADD file:///etc/passwd /x",
        "COPY --from=$X /a /b",
        "RUN --mount=type=bind,from=alpine,target=/a,rw x",
        "COPY --parents a /x",
        "ADD --unpack=true a /x",
        "RUN --mount=type=ssh x",
        "RUN --mount=type=cache,target=/a,from=alpine x",
        "RUN --security=insecure x",
        "RUN --network=host x",
        "ONBUILD ADD http://example.com/x /x",
        "ONBUILD COPY --from=alpine /a /b",
        "ONBUILD RUN --mount=type=cache,target=/c x",
        "ONBUILD RUN --network=none x",
        "ONBUILD ONBUILD RUN x",
        "ONBUILD FROM alpine",
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
        # The builder would find an image of this name, or one whose id begins so.
        "COPY --from=base /a /b",
        "RUN --mount=type=bind,from=base,target=/a x",
        'ADD "a b /x',
        "ADD a https://example.com/x /x",
        "ADD https://example.com/ /x/",
        "ADD --checksum=sha256:0 https://example.com/x /x",
        "ADD --checksum=sha256:%s a /x" % ("0" * 64),
        "COPY a",
        "COPY --from=alpine <<EOF /x\nEOF",
        "COPY <<EOF a /x\nEOF",
        "COPY <<EOF /x",
        "ADD <<$x /x",
        "ONBUILD",
        "ONBUILD FRM x",
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
        "FROM one AS rollbox-1",
        r"""RUN ["/bin/bash", "-c", "echo \"\u00fc\""]""",
        f"FROM {ID} AS rollbox-2",
        'RUN ["/bin/sh", "-c", ""]',
    ]
    assert read(text).images == ["a"]


BASES = {"a": Base({"HOME": "/h", "K": "of the base"}, ["/bin/ash", "-c"]), "b": Base({})}


def test_files_inline_are_copied_from_an_image_of_their_own() -> None:
    text = """
ARG V=1
FROM a
ARG V
ARG K=mine
ENV X=$V-$HOME Y='$V' Z="$V $K"
COPY --chown=1:2 <<EOF <<'b.txt' d /to/
$X ${Y:-no} "$Z" \\$X ${NO:-${X}} $NO$1.
EOF
$X
b.txt
ADD <<-x /x
\t\ttab
\tx
FROM b
COPY <<EOF /x
[$V$X]
EOF
"""
    found = read(text, bases=BASES)
    assert [(one.path, one.content.decode(), oct(one.mode)) for one in found.files] == [
        ("0/EOF", '1-/h $V "1 of the base" $X 1-/h .\n', "0o644"),
        ("1/b.txt", "$X\n", "0o644"),
        ("2/x", "tab\n", "0o644"),
        ("3/EOF", "[]\n", "0o644"),
    ]
    assert [line for line in lines(text, BASES) if line.startswith(("COPY", "ADD"))] == [
        "COPY --chown=1:2 --from=FILES 0/EOF 1/b.txt /to/",
        "COPY --chown=1:2 d /to/",
        "COPY --from=FILES 2/x /x",
        "COPY --from=FILES 3/EOF /x",
    ]
    assert read(text, bases=BASES, V="2").files[0].content.startswith(b"2-/h ")


def test_an_address_is_fetched_and_copied_whatever_way_it_is_written() -> None:
    digits = "0" * 64
    text = f"""
FROM a
ARG V=1
ADD https://example.com/x-$V.tgz?a=b /x/
ADD --checksum=sha256:{digits} --chmod=644 ["HTTP://example.com/y", "/y y"]
ADD h"ttp"://example.com/z ht\\tps://example.com/ä a /z/
ADD $HOME/a /b
"""
    found = read(text.replace("ä", "z2"), bases=BASES)
    assert [(one.path, one.address, one.checksum, one.line) for one in found.files] == [
        ("0/x-1.tgz", "https://example.com/x-1.tgz?a=b", "", 4),
        ("1/y", "HTTP://example.com/y", f"sha256:{digits}", 5),
        ("2/z", "http://example.com/z", "", 6),
        ("3/z2", "https://example.com/z2", "", 6),
    ]
    assert lines(text.replace("ä", "z2"), BASES)[2:] == [
        "COPY --chmod=600 --from=FILES 0/x-1.tgz /x/",
        'COPY --chmod=644 --from=FILES ["1/y", "/y y"]',
        "COPY --chmod=600 --from=FILES 2/z 3/z2 /z/",
        "ADD a /z/",
        "ADD /h/a /b",
    ]
    # What a base has in its variables is told only once it was looked at.
    assert read("FROM a\nADD $HOME/a /b").files == ()
    with pytest.raises(Problem, match="git@example"):
        read("FROM a\nADD ${X}it@example.com:a /b", bases={"a": Base({"X": "g"})})


def test_what_is_mounted_of_a_stage_is_a_copy_without_links_at_its_top() -> None:
    text = """
FROM a AS One
FROM b
RUN --mount=from=one,target=/a --mount=type=bind,from=0,source=/x,target=/b,ro --mount=from=c:1,src=f,dst=/c x
"""
    assert lines(text) == [
        f"FROM {ID} AS one",
        "FROM scratch AS rollbox-files-0",
        'COPY --from=one ["/x", "/files"]',
        "FROM scratch AS rollbox-files-1",
        f'COPY --from={ID} ["/f", "/files"]',
        f"FROM {ID} AS rollbox-1",
        " --mount=type=bind,".join(
            (
                "RUN",
                "target=/a,from=one",
                "target=/b,readonly=true,source=/files,from=rollbox-files-0",
                "target=/c,source=/files,from=rollbox-files-1 x",
            )
        ),
    ]
    assert read(text).images == ["a", "c:1", "b"]


def test_a_script_with_a_program_of_its_own_is_a_file_in_memory() -> None:
    text = "FROM a\nRUN --mount=type=tmpfs,target=/t <<-EOF\n\t#!/usr/bin/env python3\n\tx\n\tEOF"
    assert lines(text)[1] == (
        "RUN --mount=type=tmpfs,target=/t --mount=type=bind,source=/0/EOF,target=/dev/pipes/EOF,from=FILES "
        '["/dev/pipes/EOF"]'
    )
    (script,) = read(text).files
    assert (script.content, script.mode) == (b"#!/usr/bin/env python3\nx\n", 0o755)


def test_no_name_of_a_stage_leads_to_an_image_of_the_engine() -> None:
    twice = "FROM a AS x\nFROM b AS x\nFROM scratch AS rollbox-1\nCOPY --from=x /a /b\nCOPY --from=rollbox-0 /a /b"
    found = read(twice)
    assert [one.name for one in found.stages] == ["x", "rollbox-1", "rollbox-2"]
    assert lines(twice)[-2:] == ["COPY --from=rollbox-1 /a /b", f"COPY --from={ID} /a /b"]
    assert found.images == ["a", "b", "rollbox-0"]
    assert read(twice, "rollbox-1").target == "rollbox-2"
    assert read("FROM a AS abcdef12\nFROM b\nCOPY --from=abcdef12 /a /b").images == ["a", "b"]


def test_what_a_base_brings_along_is_judged_like_lines() -> None:
    triggers = ["ENV X=1", "RUN echo x", "COPY . /app", 'SHELL ["/bin/bash", "-c"]']
    text = "FROM a\nRUN <<EOF\nx\nEOF\nCOPY <<EOF /x\n$X\nEOF"
    bases = {"a": Base({}, ["/bin/ash", "-c"], triggers)}
    assert lines(text, bases)[1] == 'RUN ["/bin/bash", "-c", "x"]'
    assert read(text, bases=bases).files[0].content == b"1\n"
    for trigger in (
        "ADD http://h/x /x",
        "COPY --from=0 /a /b",
        "RUN --mount=from=a,target=/a x",
        "copy a  /b",
        "RUN x\nRUN y",
    ):
        with pytest.raises(Problem) as refused:
            read(text, bases={"a": Base({}, (), [trigger])})
        assert refused.value.details["line"] == "1", trigger


@pytest.mark.parametrize(
    "lines_",
    ["ENV A=x\n" + "ENV A=$A$A\n" * 40, "ENV A=" + "${A:-" * 400 + "}" * 400 + "\n", "ENV A='\n", "ARG A=${A\n"],
)
def test_values_without_an_end_are_refused(lines_: str) -> None:
    with pytest.raises(Problem) as refused:
        read(f"FROM a\n{lines_}COPY <<EOF /x\n$A\nEOF", bases=BASES)
    assert refused.value.code == "invalid_argument"


def test_what_an_image_says_is_read_by_its_hash(tmp_path: Path) -> None:
    told = {"config": {"Env": ["A=b=c"], "OnBuild": ["RUN x"], "Shell": ["/bin/bash", "-c"]}}
    content = json.dumps(told).encode()
    image_id = hashlib.sha256(content).hexdigest()
    file = tmp_path / "overlay-images" / image_id / f"={base64.b64encode(f'sha256:{image_id}'.encode()).decode()}"
    for wrong, said in ((None, "No such file"), (b"{}", "another hash")):
        if wrong is not None:
            file.parent.mkdir(parents=True)
            file.write_bytes(wrong)
        with pytest.raises(Problem, match=said) as refused:
            bases.read(str(tmp_path), "overlay", image_id)
        assert refused.value.code == "unsupported"
    file.write_bytes(content)
    assert Base.of(bases.read(str(tmp_path), "overlay", image_id)) == Base({"A": "b=c"}, ["/bin/bash", "-c"], ["RUN x"])
    assert Base.of({}) == Base({})


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
        (_, step) = read(f"FROM a\nRUN --mount={told} x", owner=owner).stages[0].steps
        return "".join(map(str, step))

    mine = options("me", "type=cache,target=/c")
    assert mine == options("me", "type=cache,dst=/c").replace("dst", "target")
    assert mine != options("you", "type=cache,target=/c")
    assert options("me", "type=cache,target=/c,id=../../x").count("..") == 0
    assert options("me", "type=secret,id=t,required") == "RUN --mount=type=secret,id=t,required=true x"


def entry(
    name: str, kind: bytes = tarfile.REGTYPE, link: str = "", size: int = 0, then: tuple[str, str] | None = None
) -> io.BytesIO:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        one = tarfile.TarInfo(name)
        one.type, one.linkname, one.size = kind, link, size
        archive.addfile(one, io.BytesIO(bytes(size)))
        if then is not None:
            two = tarfile.TarInfo(then[0])
            two.type, two.linkname = tarfile.SYMTYPE, then[1]
            archive.addfile(two)
    return file


@pytest.mark.parametrize(
    "file",
    [
        entry("/etc/x"),
        entry("../x"),
        entry("a/../../x"),
        entry("x", tarfile.SYMTYPE, "/etc"),
        entry("a/x", tarfile.SYMTYPE, "../../etc"),
        # By another link, which leads to where it is: each of both seems to stay.
        entry("d", tarfile.SYMTYPE, ".", then=("x", "d/d/d/../../../etc")),
        entry("a/d", tarfile.SYMTYPE, "..", then=("x", "a/d/a/d/../..")),
        entry("d", tarfile.SYMTYPE, "a", then=("d/x", "../y")),
        entry("d", tarfile.SYMTYPE, "a", then=("./d/", "b")),
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


def test_links_within_a_context_are_taken() -> None:
    for link in ("a/../b", "./d/x", "d/d/d", "x", "nosuch/..", "d/../b"):
        context.check(entry("e/d", tarfile.SYMTYPE, ".", then=("e/x", link)))


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
