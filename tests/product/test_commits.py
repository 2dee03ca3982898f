"""Images that are made of sandboxes: what is in them, what is not, and that all stands still meanwhile."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest

from rollbox import Client, CommittedImage, Sandbox, SandboxGroup
from rollbox.errors import (
    Conflict,
    Deleted,
    ImageNotFound,
    InvalidArgument,
    PayloadTooLarge,
    SandboxError,
    UpstreamTimeout,
)
from tests.support.command_line import answer, rollbox
from tests.support.commits import ON_CLUSTER, commit, made_where_offered, repository
from tests.support.images import IMAGE
from tests.support.stack import Product
from tests.support.waiting import until

# A cluster's larger group from one image is that of the example that grades from it.
GROUP = 2 if ON_CLUSTER else 4
CHANGES = """
set -e
umask 022
mkdir -p /repo/inner && cd /repo
echo content > file && chmod 4711 file && ln file same && ln -s /etc/passwd link && mkfifo pipe
printf 'x' > 'a name with spaces and ünïcode'
chown -R 1234:4321 inner
rm -r /usr/share/doc && rm -rf /usr/share/zoneinfo && mkdir /usr/share/zoneinfo && echo new > /usr/share/zoneinfo/one
echo changed >> /etc/passwd
python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("/repo/socket")'
touch /repo/.wh.file
"""
LOOK = """
cd /repo
stat -c '%n %a %u:%g %h %F' file same link pipe; stat -c '%n %a %u:%g %F' inner
cat file 'a name with spaces and ünïcode'; readlink link
ls -d /usr/share/doc 2>&1; ls /usr/share/zoneinfo; tail -n 1 /etc/passwd; ls -A /repo; echo "[$SECRET]" "$PWD"
"""


@pytest.mark.core
@made_where_offered
async def test_an_image_has_what_the_sandbox_has_changed_and_nothing_else(client: Client) -> None:
    async with repository() as name:
        async with await client.create(IMAGE, env={"SECRET": "s3cret"}) as sandbox:
            unchanged = await commit(sandbox, f"{name}:v0")
            assert unchanged.skipped == ()
            # Nothing of the platform: the end of an archive, and at most the rights of its root.
            assert unchanged.size_bytes <= 4096
            await sandbox.exec(CHANGES, check=True)
            image = await commit(sandbox, f"{name}:v1")
            assert isinstance(image, str)
            assert f"/{name}:v1@sha256:" in image
            assert image.endswith(image.digest)
            assert image.size_bytes > 0
            told = {one.partition(":")[0] for one in image.skipped}
            # gVisor does not list sockets.
            assert told >= ({"/repo/.wh.file"} if ON_CLUSTER else {"/repo/socket", "/repo/.wh.file"})
            # It goes on as if nothing had been.
            assert (await sandbox.exec("cat /repo/file; echo $SECRET")).stdout == "content\ns3cret\n"
        async with await client.create(image) as again:
            assert again.record.image_digest == image.digest
            seen = (await again.exec(LOOK)).stdout.splitlines()
        assert seen == [
            "file 4711 0:0 2 regular file",
            "same 4711 0:0 2 regular file",
            "link 777 0:0 1 symbolic link",
            "pipe 644 0:0 1 fifo",
            "inner 755 1234:4321 directory",
            "content",
            "x/etc/passwd",
            "ls: cannot access '/usr/share/doc': No such file or directory",
            "one",
            "changed",
            *sorted(["a name with spaces and ünïcode", "file", "inner", "link", "pipe", "same"]),
            "[] /repo",
        ]


async def test_an_image_of_an_image_and_a_name_that_moves(client: Client, source: Sandbox) -> None:
    look = "ls /one /two 2>/dev/null"
    async with repository() as name:
        await source.exec("echo one > /one", check=True)
        first = await commit(source, name)
        async with await client.create(first) as sandbox:
            assert (await sandbox.exec(look)).stdout == "/one\n"
            await sandbox.exec("rm /one; echo two > /two", check=True)
            second = await commit(sandbox, name)
        by_name = second.partition("@")[0]
        assert first.partition("@")[0] == by_name
        async with await client.create(by_name) as sandbox:
            assert sandbox.record.image_digest == second.digest
            assert (await sandbox.exec(look)).stdout == "/two\n"


WRITER = r"""
import os
a, b = open("/a", "w"), open("/b", "w")
while True:
    for file in (a, b):
        file.write("x")
        file.flush()
"""


async def test_all_stands_still_meanwhile_and_goes_on_after_it(client: Client, source: Sandbox) -> None:
    async with repository() as name:
        async with await source.spawn(["python3", "-c", WRITER], stdin=False):
            await until(lambda: _written(source.id, client))
            # More than is read in a moment.
            await source.exec("head -c 50000000 /dev/urandom > /large", check=True)
            image = await commit(source, name)
            before = int((await source.exec("stat -c %s /a")).stdout)
            await until(lambda: _written(source.id, client, before))
        await source.exec("rm /large", check=True)
        async with await client.create(image) as copy:
            a, b = map(int, (await copy.exec("stat -c %s /a /b")).stdout.split())
            assert 0 <= a - b <= 1


async def _written(sandbox_id: str, client: Client, least: int = 0) -> bool:
    sandbox = await client.connect(sandbox_id)
    return int((await sandbox.exec("stat -c %s /a 2>/dev/null || echo 0")).stdout) > least


async def test_a_group_starts_from_it(client: Client, source: Sandbox) -> None:
    async with repository() as name:
        await source.exec("echo prepared > /state", check=True)
        image = await commit(source, name)
        async with await SandboxGroup.create(
            image, n=GROUP, client=client, cpu=(0.05, 1), memory=("32Mi", "128Mi")
        ) as group:
            results = await asyncio.gather(*(one.exec("cat /state; echo $RANDOM > /state") for one in group))
            assert [one.stdout for one in results] == ["prepared\n"] * GROUP
            assert {one.record.image_digest for one in group} == {image.digest}


@pytest.mark.parametrize("name", ["UPPER", "a b", "../x", "a@sha256:1", "x" * 300, "a:b:c", "a/", "a:id-" + 64 * "0"])
@made_where_offered
async def test_a_malformed_name_is_refused(shared: Sandbox, name: str) -> None:
    with pytest.raises(InvalidArgument, match="name"):
        await shared.commit(name)


@pytest.mark.long
async def test_too_much_makes_no_image(client: Client, source: Sandbox) -> None:
    async with repository() as name:
        await source.exec("rm -f /a /b; head -c 3000000 /dev/zero > /large", check=True)
        await commit(source, f"{name}:small", max_bytes="4Mi")
        for limit in (1, 10_000, 2_999_999):
            with pytest.raises(PayloadTooLarge) as refused:
                await source.commit(f"{name}:large", max_bytes=limit)
            assert "/large" in refused.value.detail or limit == 1
        assert not [one for one in await _names(client, name) if one.endswith(":large")]
        await source.exec("rm /large", check=True)


async def _names(client: Client, name: str) -> set[str]:
    return {one for image in await client.images() for one in image.names if f"/{name}:" in one}


@made_where_offered
async def test_one_that_ends_meanwhile_says_so_and_leaves_no_image_and_is_not_committed_later(client: Client) -> None:
    async with repository() as name, await client.create(IMAGE) as sandbox:
        await commit(sandbox, f"{name}:before")
        await sandbox.exec("head -c 200000000 /dev/urandom > /large", check=True)
        other = await client.connect(sandbox.id)
        committing = asyncio.create_task(other.commit(f"{name}:never"))
        await asyncio.sleep(0)
        await sandbox.delete(wait=True)
        (outcome,) = await asyncio.gather(committing, return_exceptions=True)
        # Or it was faster than the delete, and is whole.
        if not isinstance(outcome, CommittedImage):
            assert isinstance(outcome, SandboxError), outcome
            assert outcome.code in ("deleted", "sandbox_lost"), outcome
            assert not [one for one in await _names(client, name) if one.endswith(":never")]
        for handle in (sandbox, other):
            with pytest.raises(Deleted):
                await handle.commit(f"{name}:later")


async def test_a_deadline_that_passes_leaves_no_image_and_a_sandbox_that_works(client: Client, source: Sandbox) -> None:
    async with repository() as name:
        await source.exec("head -c 400000000 /dev/urandom > /large", check=True)
        with pytest.raises(UpstreamTimeout):
            await source.commit(f"{name}:late", timeout=1)
        assert (await source.exec("rm /large && echo works")).stdout == "works\n"
        assert not [one for one in await _names(client, name) if one.endswith(":late")]


async def test_two_commits_of_one_sandbox_do_not_meet(source: Sandbox) -> None:
    async with repository() as name:
        await source.exec("head -c 50000000 /dev/urandom > /large", check=True)
        both = await asyncio.gather(*(source.commit(f"{name}:{tag}") for tag in ("a", "b")), return_exceptions=True)
        assert [type(one) for one in both if not isinstance(one, CommittedImage)] in ([], [Conflict])
        assert any(isinstance(one, CommittedImage) for one in both)
        await source.exec("rm /large", check=True)


async def test_what_was_never_committed_is_not_found(client: Client, source: Sandbox) -> None:
    async with repository() as name:
        image = await commit(source, name)
        never = image.partition("@")[0].replace(name, f"never-{uuid4().hex[:8]}")
        with pytest.raises(ImageNotFound):
            await client.create(never)


@pytest.mark.long
async def test_the_command_line_commits_lists_and_pulls(stack: Product, source: Sandbox) -> None:
    async with repository() as name:
        made = await commit(source, f"{name}:sdk")
        status, out, err = await rollbox(stack, "commit", source.id, f"{name}:cli")
        assert (status, err) == (0, ""), err
        assert out.decode().startswith(made.partition(":sdk@")[0])
        told = await answer(stack, "commit", source.id, f"{name}:json")
        assert set(told) == {"image", "digest", "size_bytes", "skipped"}
        status, _, err = await rollbox(stack, "commit", source.id, "UPPER")
        assert (status, "code: invalid_argument" in err) == (2, True)
        if not ON_CLUSTER:
            # Nodes have what they have pulled, by its digest.
            assert f"{name}:cli" in str(await answer(stack, "image", "list"))
        status, out, _ = await rollbox(stack, "image", "list")
        assert out.decode().splitlines()[0].split() == ["node", "image", "digest", "size", "pulled", "last", "used"]
        status, out, err = await rollbox(stack, "image", "prefetch", IMAGE, told["image"])
        assert (status, err) == (0, "")
        assert out.decode().count("here on") == 2
        assert told["digest"] in str(await answer(stack, "image", "list"))
