"""What becomes of each instruction of a Dockerfile: the table of the page about builds, and what tries its rows.

`python -m tests.support.dockerfile_rows` writes the table into the page.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "builds.md"
HEAD = "| instruction | what happens | on Kubernetes |\n|---|---|---|\n"
# gVisor has no /sys/class/net.
INTERFACES = "python3 -c 'import socket; print(*dict(socket.if_nameindex()).values())'"
# Of an address that a test serves.
DIGEST = "sha256:" + "0" * 64


@dataclass(frozen=True)
class Try:
    """One Dockerfile, behind a FROM of the tests' image (`$BASE`), with the files `a` (one), `d/e` (two) and `t.tar`.

    Attributes:
        lines: of it.
        command: what is run in a sandbox of the image.
        seen: what that prints.
        refused: the code of the refusal, before anything is built; empty: it is built.
        head: lines before the FROM.
        said: what the refusal says.
    """

    lines: str
    command: str = "echo here"
    seen: str = "here"
    refused: str = ""
    head: str = ""
    said: str = ""


@dataclass(frozen=True)
class Row:
    """A row of the table.

    Attributes:
        instruction: the first cell.
        happens: the second cell.
        tries: what shows it, on an engine and on a cluster alike.
        elsewhere: the tests that show it on an engine, where it takes more than a Dockerfile.
        on_kubernetes: the third cell.
    """

    instruction: str
    happens: str
    tries: tuple[Try, ...] = ()
    elsewhere: tuple[str, ...] = field(default=())
    on_kubernetes: str = "the same"


def no(lines: str, said: str = "", refused: str = "unsupported", head: str = "") -> Try:
    """One that is refused."""
    return Try(lines, refused=refused, said=said, head=head)


ROWS = (
    Row(
        "`FROM`, several stages, `target`",
        "as with Docker; 128 stages at most. Each image is looked up first, and the builder gets its digest",
        (
            Try(""),
            Try("RUN echo x > /x\nFROM $BASE AS two\nFROM two\nCOPY --from=0 /x /y", "cat /y; ls /x", "x"),
            Try("FROM scratch\nCOPY --from=0 / /\nENV PATH=/usr/local/bin:/usr/bin:/bin"),
        ),
        ("test_a_target_is_the_stage_that_is_built", "test_a_hundred_stages_are_built"),
        on_kubernetes="the same; an image without any file is refused. `target` was not tried there",
    ),
    Row(
        "`FROM --platform`",
        "the machine's own, `$BUILDPLATFORM`, `$TARGETPLATFORM`; another one is refused",
        (Try("FROM --platform=$TARGETPLATFORM $BASE"), no("FROM --platform=linux/s390x $BASE", "alone here")),
    ),
    Row(
        "`ARG`, before `FROM` too",
        "as with Docker; `$NAME`, `${NAME}`, `${NAME:-VALUE}`, `${NAME:+VALUE}` in the name of a base, and the "
        "platform's own (`TARGETARCH` and its like)",
        (
            Try("ARG A=1\nRUN echo $A > /x", "cat /x; echo [$A]", "1\n[]"),
            Try("ARG NAME\nRUN echo $NAME > /x", "cat /x", "given before", head="ARG NAME='given before'"),
            Try("FROM ${BASE:-nosuch}\nARG TARGETOS\nRUN echo $TARGETOS > /x", "cat /x", "linux"),
            no("FROM $NOTHING", "has no value", "invalid_argument"),
        ),
    ),
    Row(
        "`RUN`, in both forms, over lines with comments",
        "as with Docker",
        (
            Try("RUN echo x > /x", "cat /x", "x"),
            Try('RUN ["sh", "-c", "echo x > /x"]', "cat /x", "x"),
            Try("RUN echo a \\\n  # comment\n\n  b > /x", "cat /x", "a b"),
        ),
    ),
    Row(
        "documents inline of `RUN` (`RUN <<EOF`, `RUN cat > x <<EOF`)",
        "as with Docker, for the shell of `SHELL` or `/bin/sh`, or for the program that its first line names (`#!`)",
        (
            Try(
                "RUN <<EOF\nset -e\nA=1\necho a $A > /x\n# no comment\nEOF\n"
                "RUN cat <<'E' >> /x; python3 <<P >> /x\n$A\nE\nprint(1 + 1)\nP",
                "cat /x",
                "a 1\n$A\n2",
            ),
            Try("RUN <<EOF\n#!/usr/bin/env python3\nopen('/x', 'w').write('x')\nEOF", "cat /x; ls -A /dev/pipes", "x"),
            no("RUN <<EOF\nFROM b", "has no end", "invalid_argument"),
        ),
    ),
    Row(
        "documents inline of `COPY`, `ADD`",
        "as with Docker: files with 0644, with the values of variables (`$NAME`, `${NAME:-VALUE}`; `\\$` is a `$`), or "
        "word for word where the name has quotes (`<<'EOF'`)",
        (
            Try(
                "ARG V=1\nENV W=$V.2\nCOPY --chown=12:34 <<EOF /x\n$W \\$W ${N:-none} \"'\nEOF",
                "cat /x; stat -c '%u:%g %a' /x",
                "1.2 $W none \"'\n12:34 644",
            ),
            Try(
                "COPY <<'one.txt' <<-two a /to/\n$PATH\none.txt\n\ttab\ntwo",
                "cd /to; cat one.txt two a",
                "$PATH\ntab\none",
            ),
            Try("ADD <<EOF /x\n[$HOSTNAME]\nEOF", "cat /x", "[]"),
            Try("FROM scratch\nCOPY --from=0 / /\nCOPY <<EOF /x\nof none\nEOF", "cat /x", "of none"),
            no("COPY --from=$BASE <<EOF /x\nEOF", "no stage", "invalid_argument"),
        ),
    ),
    Row(
        "`RUN --mount=type=cache`",
        "one folder for each id and owner; it stays on the machine until the engine's builder is cleaned "
        "(`podman system prune`)",
        (
            Try(
                "RUN --mount=type=cache,target=/c echo x >> /c/x\nRUN --mount=type=cache,target=/c wc -l < /c/x > /n",
                "ls -A /c; test $(cat /n) -ge 1 && echo there",
                "there",
            ),
            no("RUN --mount=type=cache,target=/c,from=0 true", "from a stage"),
        ),
        on_kubernetes="a folder that lasts as long as the pod",
    ),
    Row(
        "`RUN --mount=type=secret`, `tmpfs`, `bind` of the context",
        "as with Docker",
        (
            Try("RUN --mount=type=bind,source=a,target=/m/a cat /m/a > /x", "cat /x; ls -A /m", "one"),
            Try("RUN --mount=type=tmpfs,target=/m echo x > /m/x", "ls -A /m", ""),
            no("RUN --mount=type=bind,source=../x,target=/m true", "leads out", "invalid_argument"),
        ),
        ("test_a_secret_is_in_no_layer_and_no_change",),
    ),
    Row(
        "`RUN --mount=type=bind,from=` a stage or an image",
        "read only (`rw` is refused); what a `source` names is copied first, so a large one takes its room",
        (
            Try(
                "RUN mkdir /s && echo x > /s/x\nFROM $BASE\n"
                "RUN --mount=from=0,target=/m cat /m/s/x > /x; ! touch /m/new\n"
                "RUN --mount=type=bind,from=0,source=/s,target=/m cat /m/x >> /x\n"
                "RUN --mount=from=0,source=/s/x,target=/f cat /f >> /x",
                "cat /x; ls -A /m",
                "x\nx\nx",
            ),
            Try("RUN --mount=from={image},source=/etc,target=/m grep -c ^ID= /m/os-release > /x", "cat /x", "1"),
            # A link of a stage leads nowhere else: neither to this machine's files nor to those of the stage.
            Try(
                "RUN mkdir /s && ln -s / /s/out && ln -s /s /l\nFROM $BASE\n"
                "RUN --mount=from=0,source=/l,target=/m readlink /m/out > /x; ls /m/out/s >> /x 2>&1 || echo no >> /x",
                "head -n 1 /x; tail -n 1 /x",
                "/\nno",
            ),
            no("RUN --mount=from=0,target=/m,rw true", "read only", head="FROM $BASE"),
        ),
    ),
    Row("`RUN --mount=type=ssh`", "refused: use a secret", (no("RUN --mount=type=ssh true", "type 'ssh'"),)),
    Row(
        "`RUN --network=none`, `default`",
        "none; beside an egress policy `none` is refused; `host` is always",
        (
            Try(f"RUN --network=none {INTERFACES} > /x", "cat /x", "lo"),
            Try(f"RUN --network=default {INTERFACES} > /x", "cat /x", "lo"),
            no("RUN --network=host true", "no network of its own"),
        ),
    ),
    Row("`RUN --security=insecure`", "refused", (no("RUN --security=insecure true", "no privileges"),)),
    Row(
        "`COPY`, `--from` a stage or an image, `--chown`, `--chmod`",
        "as with Docker; other flags (`--parents`, `--exclude`) are refused",
        (
            Try("COPY a d /to/", "cat /to/a /to/e", "onetwo"),
            Try("COPY --chown=12:34 --chmod=640 a /x", "stat -c '%u:%g %a' /x", "12:34 640"),
            Try("RUN echo x > /x\nFROM $BASE\nCOPY --from=0 /x /y", "cat /y; ls /x", "x"),
            Try("COPY --from={image} /etc/os-release /y", "grep -c ^ID= /y", "1"),
            no("COPY --parents d/e /x", "--parents"),
            no("FROM $BASE AS me\nCOPY --from=me /a /b", "earlier", "invalid_argument"),
        ),
        ("test_a_base_that_is_not_there_or_is_another_owners_is_refused",),
    ),
    Row(
        "`COPY --link`",
        "copied; it is no layer of its own for the cache",
        (Try("COPY --link a /x", "cat /x", "one"),),
    ),
    Row(
        "`ADD` of files and archives of the context",
        "as with Docker: an archive is unpacked",
        (Try("ADD a /x", "cat /x", "one"), Try("ENV WHAT=t\nADD $WHAT.tar /x/", "cat /x/in", "in")),
    ),
    Row(
        "`ADD` of an address (`http`, `https`), with `--checksum`",
        "fetched by the policy of the build, and without one refused (`unsupported`); not unpacked, with 0600. What is "
        "behind an address is not looked at again: give a `--checksum`, or an `ARG` that changes",
        (
            no("ADD https://index.test/x /x", "takes a policy"),
            no(f"ADD --checksum={DIGEST} a /x", "of one address", "invalid_argument"),
            no("ADD https://user:word@index.test/x /x", "without a login"),
        ),
        ("test_what_is_added_from_an_address_comes_by_the_policy",),
        on_kubernetes="the same; what a policy allows was fetched by a `RUN` there, and by no `ADD` yet",
    ),
    Row(
        "`ADD` of a Git repository",
        "refused: have it in the context, or fetch it in a `RUN`",
        (
            no("ADD https://index.test/x.git /x", "ADD of"),
            no("ADD git@index.test:a/b /x", "ADD of"),
            no("ADD ssh://index.test/x /x", "ADD of"),
        ),
    ),
    Row(
        "`ENV`, `USER`, `WORKDIR`, `LABEL`, `EXPOSE`, `STOPSIGNAL`, `MAINTAINER`",
        "as with Docker; commands in sandboxes have variables, user and directory",
        (
            Try("ENV A=1 B='two words'\nRUN echo $B > /x", "cat /x; echo $A", "two words\n1"),
            Try("USER 65534\nRUN id -u > /tmp/x", "cat /tmp/x; id -u", "65534\n65534"),
            Try("WORKDIR /made/by\nRUN pwd > x", "cat x; pwd", "/made/by\n/made/by"),
            Try("LABEL a=b\nEXPOSE 80\nSTOPSIGNAL 9\nMAINTAINER me"),
        ),
    ),
    Row(
        "`SHELL`",
        "as with Docker; of a base that has one too",
        (Try('SHELL ["python3", "-c"]\nRUN open("/x", "w").write("x")', "cat /x", "x"),),
        ("test_what_a_base_says_of_its_shell_and_its_triggers_holds",),
        on_kubernetes="the same; a base that has one was not tried there",
    ),
    Row(
        "`ENTRYPOINT`, `CMD`, `HEALTHCHECK`",
        "kept in the image; sandboxes run none of them",
        (Try('ENTRYPOINT ["false"]\nCMD ["x"]'), Try("HEALTHCHECK --interval=1s CMD false"), Try("HEALTHCHECK NONE")),
    ),
    Row(
        "`VOLUME`",
        "declared; each start copies what is in it",
        (Try("RUN mkdir /v && echo x > /v/x\nVOLUME /v", "cat /v/x", "x"),),
    ),
    Row(
        "`ONBUILD`, and a base that has triggers",
        "as with Docker; a trigger that names a stage, an image, an address, a cache or a document is refused",
        (
            Try("ONBUILD RUN echo x > /x\nFROM $BASE", "ls /x", ""),
            no("ONBUILD ADD https://index.test/x /x", "trigger"),
            no("ONBUILD COPY --from=other /a /b", "trigger"),
            no("ONBUILD RUN --mount=type=cache,target=/c true", "trigger"),
            no("ONBUILD ONBUILD RUN true", "trigger"),
        ),
        ("test_what_a_base_says_of_its_shell_and_its_triggers_holds",),
        on_kubernetes="the same; a base that has triggers was not tried there",
    ),
    Row(
        "`# syntax=`, `# check=`",
        "read over: there is one builder. `# escape=` other than `\\` is refused",
        (
            Try("", head="# syntax=docker/dockerfile:1\n# check=skip=all"),
            no("", "another escape character", head="# escape=`"),
        ),
    ),
)


def tries() -> Iterator[tuple[str, Try]]:
    """All of them, with a name for each."""
    for row in ROWS:
        for number, one in enumerate(row.tries):
            yield f"{row.instruction.replace('`', '')[:40]}-{number}", one


def dockerfile(one: Try, image: str) -> str:
    """The text of a try."""
    head = f"{one.head}\n" if one.head.startswith("#") else ""
    before = f"{one.head}\n" if one.head and not head else ""
    return f"{head}ARG BASE={image}\n{before}FROM $BASE\n{one.lines.replace('{image}', image)}\n"


def table() -> str:
    """As the page has it."""
    return HEAD + "".join(f"| {row.instruction} | {row.happens} | {row.on_kubernetes} |\n" for row in ROWS)


def written(page: str) -> str:
    """The page with the table of now."""
    begin = page.index(HEAD)
    end = page.index("\n\n", begin) + 1
    return page[:begin] + table() + page[end:]


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
