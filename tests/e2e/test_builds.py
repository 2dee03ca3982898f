"""Builds on a real cluster: those of the product, and what a pod in which BuildKit runs may do."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing
from uuid import uuid4

import pytest

from rollbox import Client
from rollbox.errors import BuildFailed, ImageNotFound, InvalidArgument, PermissionDenied, Unsupported
from tests.product.test_grading import harbor_example
from tests.support.building import (
    Context,
    context,
    does_what_its_row_says,
    ends_at_its_target,
    gone,
    has_a_hundred_stages,
    has_won_nothing,
    keeps_the_shell_and_the_triggers_of_its_base,
)
from tests.support.command_line import rollbox
from tests.support.committing import BUILDS, committing
from tests.support.dockerfile_rows import tries
from tests.support.images import IMAGE
from tests.support.installed import Installed, objects, own_cluster
from tests.support.waiting import until

__all__ = [
    "context",
]
pytestmark = [
    pytest.mark.images,
    pytest.mark.disrupts,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not own_cluster(), reason="a given cluster's nodes are not told of another registry by a test"),
]
RELEASE = "rollbox-builds"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """A release that builds images."""
    with asyncio.Runner() as runner:
        installing = committing(RELEASE, tmp_path_factory.mktemp("upstream"), *BUILDS)
        made = runner.run(installing.__aenter__())
        try:
            yield made
        finally:
            runner.run(installing.__aexit__(None, None, None))


@pytest.fixture
async def stranger(stack: Installed) -> AsyncIterator[Client]:
    async with Client(stack.url, stack.strangers_key) as client:
        yield client


async def builders(stack: Installed) -> list[str]:
    """The pods of builds."""
    found = await objects("pods", "-n", stack.sandboxes, "-l", "rollbox.dev/build")
    return [one["metadata"]["name"] for one in found]


async def none_left(stack: Installed) -> bool:
    return await builders(stack) == []


async def test_a_dockerfile_becomes_an_image_that_runs(context: Context, stack: Installed) -> None:
    secret = f"secret-{uuid4().hex}"
    context.write(
        "FROM $BASE AS first\nWORKDIR /made\nCOPY a .\nRUN cat a a > twice\n"
        "FROM $BASE\nENV WHAT=built\nWORKDIR /app\nCOPY --from=first /made/twice .\n"
        "RUN --mount=type=secret,id=token sha256sum < /run/secrets/token | cut -c 1-64 > sum",
        a="one",
    )
    image = await context.build(secrets={"token": secret})
    async with await context.client.create(image) as sandbox:
        seen = (await sandbox.exec("pwd; echo $WHAT; cat twice; echo; cat sum", check=True)).stdout.split()
        assert seen == ["/app", "built", "oneone", hashlib.sha256(secret.encode()).hexdigest()]
        look = f"grep -rl {secret} / --exclude-dir=proc --exclude-dir=sys; ls -A /run/secrets"
        assert (await sandbox.exec(look, timeout=60)).stdout.strip() == ""
    assert (await context.build(secrets={"token": "another"})).cached
    await until(lambda: none_left(stack))


async def test_the_command_line_builds(context: Context, stack: Installed) -> None:
    context.write("FROM $BASE\nRUN echo built > /x")
    status, out, err = await rollbox(stack, "image", "build", str(context.folder))
    assert status == 0, err
    assert "RUN echo built > /x" in err
    async with await context.client.create(out.decode().strip()) as sandbox:
        assert (await sandbox.exec("cat /x")).stdout == "built\n"


async def test_what_another_owner_has_built_is_no_base(context: Context, stranger: Client) -> None:
    context.write("FROM $BASE\nRUN echo mine > /x")
    mine = await context.build()
    with pytest.raises(PermissionDenied):
        await stranger.create(mine)
    for line in (f"FROM {mine}", f"FROM {IMAGE}\nCOPY --from={mine} /x /x"):
        context.put("Dockerfile", f"{line}\n")
        with pytest.raises(PermissionDenied):
            await stranger.build(context.folder)
    # Neither is a copy in the registry, whose name nobody may say.
    place = mine.partition("/commits/")[0]
    context.write(f"FROM {place}/mirror/x@sha256:{'0' * 64}")
    with pytest.raises((ImageNotFound, PermissionDenied)):
        await context.build()
    context.write(f"FROM {mine}\nRUN echo more >> /x")
    assert await context.seen("cat /x") == "mine\nmore\n"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("RUN exit 7", "exit code: 7"),
        ("RUN mount -t tmpfs none /mnt", "mount"),
        ("RUN mknod /d b 8 0 && head -c 1 /d", "mknod"),
        ("RUN python3 -c 'import socket; socket.create_connection((\"192.0.2.1\", 80), 5)'", "python3"),
        # The program that the control plane speaks with is not reached from a step either.
        ("RUN python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 7070), 5)'", "python3"),
        ("RUN python3 -c 'import socket; socket.getaddrinfo(\"example.com\", 80)'", "python3"),
        ("COPY nosuch /x", "nosuch"),
        ("RUN python3 -c 'x = bytearray(3 << 30); x[::4096] = bytes(len(x[::4096]))'", "no image was built"),
        ("RUN head -c 3000000000 /dev/urandom > /x", "no image was built"),
    ],
)
async def test_a_step_that_fails_says_which(context: Context, stack: Installed, lines: str, said: str) -> None:
    context.write(f"FROM $BASE\n{lines}")
    with pytest.raises(BuildFailed) as failed:
        await context.build()
    assert said in failed.value.detail
    await until(lambda: none_left(stack))


# A pod for each that is built: ten minutes.
@pytest.mark.tools
@pytest.mark.parametrize("row", dict(tries()))
async def test_what_an_instruction_does(context: Context, row: str) -> None:
    await does_what_its_row_says(context, row)


@pytest.mark.tools
@pytest.mark.parametrize(
    "check", [keeps_the_shell_and_the_triggers_of_its_base, ends_at_its_target, has_a_hundred_stages]
)
async def test_stages_and_bases_do_what_they_do_on_an_engine(
    context: Context, check: Callable[[Context], Awaitable[None]]
) -> None:
    await check(context)


async def test_no_step_gets_out_of_its_build(context: Context, stack: Installed) -> None:
    await has_won_nothing(context)
    await until(lambda: none_left(stack))


async def test_two_owners_of_the_same_context_have_an_image_each(
    context: Context, client: Client, stranger: Client
) -> None:
    context.write("FROM $BASE\nRUN echo built > /x")
    mine = await context.build()
    theirs = await stranger.build(context.folder)
    assert not theirs.cached, "nobody learns what another owner has built"
    assert theirs != mine
    for owner, other in ((client, theirs), (stranger, mine)):
        assert other not in {one.image for one in (await owner.commits()).images}
        with pytest.raises(PermissionDenied):
            await owner.remove_image(other)
    await stranger.remove_image(theirs)
    assert (await context.build()).cached


# What they do is seen by the same on an engine, with all of the example's agents; here by two.
async def test_tasks_in_harbors_format_are_built_and_graded_by_their_oracle(stack: Installed) -> None:
    said = await harbor_example(stack, "--build", "--agent", "oracle", "--agent", "plants modules")
    assert said == ["oracle: reward 1 in 10 of 10 tasks", "plants modules: reward 0 in 10 of 10 tasks"]


async def test_one_that_never_ends_ends_in_its_time(context: Context, client: Client, stack: Installed) -> None:
    context.write("FROM $BASE\nRUN while :; do sleep 1; done")
    with pytest.raises(BuildFailed, match="not done in its time"):
        await client.build(context.folder, timeout=20)
    await until(lambda: none_left(stack))


async def test_nothing_is_left_of_a_build_whose_caller_has_gone(
    context: Context, client: Client, stack: Installed
) -> None:
    context.write("FROM $BASE\nRUN echo begun; while :; do sleep 1; done")
    said = ""
    async with aclosing(aiter(client.build(context.folder))) as told:
        async for progress in told:
            said += progress.text
            if "] RUN" in said:
                assert len(await builders(stack)) == 1
                break
    await until(lambda: none_left(stack))


async def log_of(context: Context) -> str:
    """What the builder says of a build."""
    said = ""
    async with aclosing(aiter(context.client.build(context.folder))) as told:
        async for progress in told:
            said += progress.text
    await context.build()
    return said


async def test_the_next_image_of_an_owner_begins_where_it_differs(
    context: Context, stack: Installed, stranger: Client
) -> None:
    steps = f"FROM $BASE\nRUN echo {uuid4().hex} > /shared; (setsid sleep 1000 >&- 2>&- &)\nCOPY file /file\n"
    # Of one size and time, as all files of contexts have it.
    context.write(f"{steps}RUN true", file="one")
    assert "CACHED" not in await log_of(context)
    (first,) = await builders(stack)
    look = "RUN for one in /proc/[0-9]*; do tr '\\0' ' ' < $one/cmdline; echo; done > /seen"
    context.write(f"{steps}{look}", file="two")
    said = await log_of(context)
    assert re.findall(r"\[(\d)/4\] [^\n]*\n#\d+ CACHED", said) == ["1"], said
    assert await builders(stack) == [first]
    seen = await context.seen("cat /file /seen")
    assert seen.startswith("two")
    assert "sleep 1000" not in seen, "what a step has left has ended with its build"
    assert "buildkitd" in seen
    # Somebody else begins at the base, elsewhere.
    other = Context(context.folder, stranger)
    assert "CACHED" not in await log_of(other)
    # The first one waits for its owner's next build no longer than half a minute.
    assert len({*await builders(stack)} - {first}) == 1
    await until(lambda: none_left(stack))
    await until(lambda: gone(stranger, other.images))


async def test_what_the_pods_cannot_do_is_refused(context: Context, client: Client) -> None:
    context.write("FROM $BASE\nRUN true")
    with pytest.raises(Unsupported, match="egress is not installed"):
        await client.build(context.folder, egress="packages")
    context.write("FROM $BASE\nRUN --security=insecure true")
    with pytest.raises(Unsupported):
        await context.build()
    context.write("FROM scratch\nENV A=1")
    with pytest.raises((BuildFailed, InvalidArgument), match="no file at all"):
        await context.build()
