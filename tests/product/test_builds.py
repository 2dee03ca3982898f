"""Images from Dockerfiles: what each instruction does, what is refused, what a failure leaves."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import tarfile
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from rollbox import BuiltImage, Client
from rollbox.errors import (
    BuildFailed,
    ImageNotFound,
    ImagePullFailed,
    InvalidArgument,
    PayloadTooLarge,
    PermissionDenied,
    Unsupported,
)
from tests.support import build_attacks
from tests.support.building import (
    Context,
    context,
    does_what_its_row_says,
    ends_at_its_target,
    has_a_hundred_stages,
    has_won_nothing,
    keeps_the_shell_and_the_triggers_of_its_base,
)
from tests.support.command_line import rollbox
from tests.support.commits import ON_CLUSTER
from tests.support.containers import engine, list_images
from tests.support.dockerfile_rows import tries
from tests.support.images import IMAGE
from tests.support.product import containers_of_state
from tests.support.stack import Product, Stack
from tests.support.waiting import until

__all__ = [
    "context",
]

on_engine = pytest.mark.skipif(ON_CLUSTER, reason="images are built on an engine alone; the cluster refuses, see below")


@pytest.mark.skipif(not ON_CLUSTER, reason="an engine builds")
async def test_a_cluster_says_that_it_builds_none(context: Context) -> None:
    context.write("FROM $BASE")
    with pytest.raises(Unsupported, match=r"builds\.enabled"):
        await context.build()


@on_engine
@pytest.mark.long
async def test_what_was_built_is_not_built_again_and_what_has_changed_is(context: Context, client: Client) -> None:
    context.write("FROM $BASE\nARG V=1\nCOPY a b/ /files/\nRUN echo $V > /v", **{"a": "one", "b/c": "two"})
    first = await context.build()
    assert not first.cached
    assert first.endswith(first.digest)
    again = await context.build()
    assert (again, again.cached) == (first, True)
    # Neither what has no meaning nor what is left out counts.
    context.put(".dockerignore", "*.log\n.dockerignore\n")
    context.put("x.log", "x")
    assert (await context.build()).cached
    assert {await context.build(args={"V": "2"}), await context.build(args={"V": "3"})}.isdisjoint({first})
    assert await context.seen("cat /v", args={"V": "2"}) == "2\n"
    context.put("a", "another")
    assert not (await context.build()).cached
    mine = {one.digest: one for one in (await client.commits()).images}
    assert 0 < mine[first.digest].size_bytes == first.size_bytes < 1 << 20


@on_engine
async def test_an_image_says_what_its_processes_are(context: Context, client: Client) -> None:
    context.write('FROM $BASE\nENV A=1\nWORKDIR /w\nENTRYPOINT ["a", "b"]\nCMD ["c"]\nEXPOSE 80\nSTOPSIGNAL SIGINT')
    built = await context.build()
    said = await client.image_config(built)
    assert (said.digest, said.entrypoint, said.cmd) == (built.digest, ("a", "b"), ("c",))
    assert (said.env["A"], said.cwd, said.ports, said.stop_signal) == ("1", "/w", ("80/tcp",), "SIGINT")
    with pytest.raises((ImageNotFound, ImagePullFailed), match="registry.example"):
        await client.image_config("registry.example/never/pulled:1")


@on_engine
@pytest.mark.tools
@pytest.mark.parametrize("row", dict(tries()))
async def test_what_an_instruction_does(context: Context, row: str) -> None:
    await does_what_its_row_says(context, row)


@pytest.mark.tools
@on_engine
async def test_documents_and_mounts_of_stages_come_from_where_they_say(context: Context) -> None:
    steps = (
        "ENV V=1\nRUN mkdir /s && echo x > /s/x && ln -s / /s/out\nFROM $BASE\nARG W=2\n"
        "COPY <<EOF <<'b.txt' /to/\n$W\nEOF\n$W\nb.txt\n"
        "RUN --mount=from=0,source=/s,target=/m readlink /m/out > /out; cat /m/x >> /out; ! touch /m/new\n"
        "RUN <<EOF\n#!/usr/bin/env python3\nopen('/out', 'a').write('by python')\nEOF"
    )
    context.write(f"FROM $BASE\n{steps}")
    before = await files_of_builds()
    image = await context.build()
    async with await context.client.create(image) as sandbox:
        seen = await sandbox.exec("cat /to/EOF /to/b.txt /out; ls -A /dev/pipes /rollbox* 2>/dev/null")
        assert seen.stdout == "2\n$W\n/\nx\nby python"
    # The image that had them is not left.
    assert await files_of_builds() <= before
    context.put("a", "another")
    assert await context.seen("cat /to/EOF", args={"W": "3"}) == "3\n"


async def files_of_builds() -> set[str]:
    """The images that builds have for what is inline."""
    named = await list_images("--all", "--format", "{{.Repository}}")
    return {one for one in named.split() if "rollbox-files" in one}


@pytest.mark.tools
@on_engine
async def test_what_a_base_says_of_its_shell_and_its_triggers_holds(context: Context) -> None:
    await keeps_the_shell_and_the_triggers_of_its_base(context)
    # Made by other means, where nothing has judged it, and its history says nothing of it.
    text = f"FROM {IMAGE}\nONBUILD ADD http://192.0.2.1/x /x\n"
    (context.folder / "Containerfile").write_text(text)
    file = str(context.folder / "Containerfile")
    await engine("build", "--format", "docker", "--tag", "localhost/hostile:1", "--file", file, str(context.folder))
    try:
        context.put("Dockerfile", "FROM localhost/hostile:1\n")
        with pytest.raises(Unsupported, match="ONBUILD ADD http://192.0.2.1/x"):
            await context.build()
    finally:
        await engine("rmi", "localhost/hostile:1")


@pytest.mark.tools
@on_engine
async def test_a_target_is_the_stage_that_is_built(context: Context) -> None:
    await ends_at_its_target(context)


@on_engine
async def test_a_secret_is_in_no_layer_and_no_change(context: Context) -> None:
    secret = f"secret-{uuid4().hex}"
    context.write("FROM $BASE\nRUN --mount=type=secret,id=token sha256sum < /run/secrets/token > /sum\nCOPY . /all")
    image = await context.build(secrets={"token": secret})
    history = await engine("history", "--no-trunc", "--format", "{{.CreatedBy}}", image.digest)
    assert secret not in history
    async with await context.client.create(image) as sandbox:
        look = f"grep -rl {secret} / --exclude-dir=proc --exclude-dir=sys; ls -A /run/secrets"
        assert (await sandbox.exec(look, timeout=60)).stdout.strip() == ""
        assert (await sandbox.exec("cut -c 1-64 /sum")).stdout.strip() == hashlib.sha256(secret.encode()).hexdigest()
    assert (await context.build(secrets={"token": "another"})).cached
    context.write("FROM $BASE\nRUN --mount=type=secret,id=token,required cat /run/secrets/token")
    with pytest.raises(BuildFailed, match="token"):
        await context.build()


@on_engine
@pytest.mark.parametrize(
    ("lines", "said"),
    [
        # The network is that of a sandbox: none. Neither the machine's own addresses nor names are reached.
        ("RUN python3 -c 'import socket; socket.create_connection((\"192.0.2.1\", 80), 5)'", "RUN python3"),
        ("RUN python3 -c 'import socket; socket.getaddrinfo(\"example.com\", 80)'", "RUN python3"),
        # Nor privileges, devices and processes of the machine.
        ("RUN mount -t tmpfs none /mnt", "RUN mount"),
        ("RUN mknod /d b 8 0 && head -c 1 /d", "RUN mknod"),
        ("RUN test $(ls /proc | grep -c '^[0-9]') -gt 20", "RUN test"),
        ("RUN exit 7", "exit status 7"),
        ("COPY nosuch /x", "nosuch"),
        ("COPY ../../etc/passwd /x", "passwd"),
        ("RUN echo begun; kill -9 $$", "RUN echo begun"),
    ],
)
async def test_a_step_that_fails_says_which(context: Context, lines: str, said: str) -> None:
    context.write(f"FROM $BASE\n{lines}")
    with pytest.raises(BuildFailed) as failed:
        await context.build()
    assert said in failed.value.detail


@on_engine
async def test_no_step_gets_out_of_its_build(context: Context) -> None:
    await has_won_nothing(context)


@on_engine
async def test_an_archive_that_is_added_stays_in_its_image(context: Context) -> None:
    name = f"escaped-{uuid4().hex}"
    context.write("FROM $BASE\nADD evil.tar /into/", a="a")
    (context.folder / "evil.tar").write_bytes(build_attacks.archive(name))
    # A builder may refuse it, too.
    with suppress(BuildFailed):
        seen = await context.seen(f"ls / /tmp /into /into/link | grep -c {name}")
        assert int(seen) > 0
    assert not [one for one in (Path("/"), Path("/tmp")) if any(one.glob(f"{name}*"))]


@on_engine
async def test_a_base_that_is_not_there_or_is_another_owners_is_refused(context: Context) -> None:
    context.write("FROM localhost/nosuch:1")
    with pytest.raises(ImageNotFound, match="localhost/nosuch:1"):
        await context.build()
    context.write("FROM $BASE\nRUN echo mine > /x")
    mine = await context.build()
    place = mine.partition("/builds:")[0].rpartition("/")[0]
    for line in (f"FROM {place}/somebody-else/name:1", f"FROM $BASE\nCOPY --from={place}/somebody-else/name:1 /x /x"):
        context.write(line)
        with pytest.raises(PermissionDenied):
            await context.build()
    # What is found by a part of an id is nobody's by that.
    for digits in (mine.digest[7:19], mine.digest[7:]):
        context.write(f"FROM {digits}")
        with pytest.raises((ImageNotFound, ImagePullFailed, InvalidArgument)):
            await context.build()
    context.write(f"FROM {mine}\nRUN echo more >> /x")
    assert await context.seen("cat /x") == "mine\nmore\n"


# Ends with 9 where it gets no more processes.
FORK = """
import os, signal
for count in range(6000):
    try:
        child = os.fork()
    except OSError:
        os._exit(9)
    if not child:
        signal.pause()
"""


def steps(text: str) -> set[str]:
    """The images that a builder says that it has made."""
    return {line.removeprefix("--> ") for line in text.splitlines() if line.startswith("--> ")}


async def left(stack: Product, made: set[str]) -> tuple[set[str], list[str]]:
    """Which images of a build's steps are there, and the containers of builds."""
    assert isinstance(stack, Stack)
    containers = [one for one in await containers_of_state(stack.state_dir) if one.startswith("rollbox-build-")]
    return {one for one in made if await there(one)}, containers


async def there(image: str) -> bool:
    """Whether the engine has an image; a list of all fails while others are removed."""
    try:
        await engine("image", "inspect", image)
    except RuntimeError:
        return False
    return True


@on_engine
@pytest.mark.tools
@pytest.mark.parametrize("end", ["false", "while :; do sleep 1; done", "while :; do echo again; done"])
async def test_nothing_is_left_of_a_build_that_fails_or_takes_too_long(
    context: Context, client: Client, stack: Product, end: str
) -> None:
    context.write(f"FROM $BASE\nCOPY of-this-test /one\nRUN {end}")
    said: list[str] = []

    async def read() -> None:
        async for progress in client.build(context.folder, timeout=30):
            said.append(progress.text)

    with pytest.raises(BuildFailed) as failed:
        await read()
    made = steps("".join(said))
    late = end != "false"
    assert ("not done in its time" in failed.value.detail) == late
    assert ("timeout=" in failed.value.hint) == late
    # On a busy machine its time may be over before the first step is.
    assert made or late
    assert await left(stack, made) == (set(), [])


@on_engine
async def test_nothing_is_left_of_a_build_whose_caller_has_gone(
    context: Context, client: Client, stack: Product
) -> None:
    context.write("FROM $BASE\nCOPY of-this-test /one\nRUN while :; do sleep 1; done")
    said = ""
    async with aclosing(aiter(client.build(context.folder))) as told:
        async for progress in told:
            said += progress.text
            if "RUN while" in said:
                assert (await left(stack, set()))[1]
                break

    async def clean() -> bool:
        return await left(stack, steps(said)) == (set(), [])

    await until(clean)


@on_engine
@pytest.mark.tools
async def test_steps_have_limits_of_their_own(context: Context) -> None:
    context.write("FROM $BASE\nCOPY fork.py /\nRUN timeout 60 python3 /fork.py", **{"fork.py": FORK})
    with pytest.raises(BuildFailed, match="exit status 9"):
        await context.build()
    context.write("FROM $BASE\nRUN python3 -c 'x = bytearray(6 << 30); x[::4096] = bytes(len(x[::4096]))'")
    with pytest.raises(BuildFailed, match="RUN python3"):
        await context.build()


@on_engine
async def test_builds_at_once_take_turns_and_the_same_one_is_built_once(context: Context, tmp_path: Path) -> None:
    context.write("FROM $BASE\nRUN sleep 1; date +%N > /x")
    images = await asyncio.gather(*(context.build() for _ in range(6)))
    assert len(set(images)) == 1
    assert sum(not one.cached for one in images) == 1


@on_engine
@pytest.mark.tools
async def test_a_hundred_stages_are_built(context: Context) -> None:
    await has_a_hundred_stages(context)


WISH = {"dockerfile": "FROM scratch", "context": f"sha256:{'0' * 64}"}


@on_engine
@pytest.mark.parametrize(
    ("wish", "archive", "said"),
    [
        (b"no json", b"", "the first line is no JSON"),
        ({**WISH, "tag": "x"}, b"", "tag is not a known field"),
        ({**WISH, "context": "x"}, b"", "context: must have the form"),
        ({**WISH, "args": {"a b": "x"}}, b"", "args"),
        ({**WISH, "secrets": {"a": "!"}}, b"", "secrets.a is no base64"),
        ({**WISH, "timeout_ms": 1}, b"", "timeout_ms: must be at least"),
        (WISH, b"x" * 1024, "the context has the digest sha256:"),
        (b" " * (3 << 20), b"", "the first line of a build has at most"),
    ],
)
async def test_a_request_that_is_none_is_refused(client: Client, wish: Any, archive: bytes, said: str) -> None:
    async def source() -> AsyncIterator[bytes]:
        yield wish if isinstance(wish, bytes) else json.dumps(wish).encode()
        yield b"\n" + archive

    with pytest.raises((InvalidArgument, PayloadTooLarge), match=said):
        async with client.gateway.exchange_api("POST", "images", "build", source=source):
            pass


@on_engine
async def test_an_archive_of_a_stranger_is_refused_before_the_engine_has_it(client: Client) -> None:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        one = tarfile.TarInfo("../../escaped")
        archive.addfile(one)
    wish = {
        "dockerfile": f"FROM {IMAGE}\nCOPY . /x",
        "context": f"sha256:{hashlib.sha256(made.getvalue()).hexdigest()}",
    }

    async def source() -> AsyncIterator[bytes]:
        yield json.dumps(wish).encode() + b"\n" + made.getvalue()

    async with client.gateway.exchange_api("POST", "images", "build", source=source) as answer:
        last = json.loads((await answer.everything()).splitlines()[-1])
    assert last["state"] == "failed"
    assert (last["problem"]["code"], "leads out of the context" in last["problem"]["detail"]) == (
        "invalid_argument",
        True,
    )


@pytest.mark.tools
@on_engine
async def test_an_archive_of_more_files_than_a_context_has_is_refused(client: Client) -> None:
    entries = b"".join(tarfile.TarInfo(f"{number:06}").tobuf() for number in range(100_001))
    content = entries + b"\0" * 1024
    wish = {"dockerfile": f"FROM {IMAGE}\n", "context": f"sha256:{hashlib.sha256(content).hexdigest()}"}

    async def source() -> AsyncIterator[bytes]:
        yield json.dumps(wish).encode() + b"\n"
        for begin in range(0, len(content), 1 << 20):
            yield content[begin : begin + (1 << 20)]

    async with client.gateway.exchange_api("POST", "images", "build", source=source) as answer:
        last = json.loads((await answer.everything()).splitlines()[-1])
    assert (last["problem"]["code"], last["problem"]["details"]["reason"]) == ("payload_too_large", "context_too_large")


@pytest.mark.tools
@on_engine
async def test_a_data_set_is_built_once(context: Context, stack: Product, tmp_path: Path) -> None:
    folder = tmp_path / "tasks"
    for number in range(4):
        environment = folder / f"task-{number}" / "environment"
        environment.mkdir(parents=True)
        common = "RUN echo common > /common"
        (environment / "Dockerfile").write_text(f"FROM {IMAGE}\n{common}\nRUN echo {number} {uuid4().hex} > /task\n")
    manifest = tmp_path / "images.json"
    status, _, err = await rollbox(stack, "image", "build", str(folder), "--manifest", str(manifest))
    assert (status, "4 built, 0 there already, 0 failed" in err) == (0, True), err
    images = json.loads(manifest.read_text())
    context.images += map(BuiltImage, images.values())
    status, _, err = await rollbox(stack, "image", "build", str(folder))
    assert (status, "0 built, 4 there already, 0 failed" in err) == (0, True), err
    status, out, err = await rollbox(stack, "image", "prefetch", f"@{manifest}")
    assert (status, out.decode().count("here on this machine")) == (0, 4), err
    async with await context.client.create(images["task-2"]) as sandbox:
        assert (await sandbox.exec("cat /common /task")).stdout.startswith("common\n2 ")
