"""Commits on a real cluster: those of the product, and what only a node and a registry can do to them."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from rollbox import Client, CommittedImage, Sandbox
from rollbox.errors import CheckpointNotFound, PayloadTooLarge, PermissionDenied, SandboxError, UpstreamTimeout
from tests.product.test_checkpoints import (
    test_a_chain_of_checkpoints_has_all_changes_and_no_more_layers,
    test_a_key_makes_one,
    test_a_named_image_outlives_the_checkpoint_that_it_comes_from,
    test_branches_of_one_sandbox_do_not_see_each_other,
    test_one_whose_time_is_over_and_one_that_never_was,
    test_the_command_line_makes_shows_and_starts_them,
)
from tests.product.test_commits import (
    test_a_deadline_that_passes_leaves_no_image_and_a_sandbox_that_works,
    test_a_group_starts_from_it,
    test_a_malformed_name_is_refused,
    test_all_stands_still_meanwhile_and_goes_on_after_it,
    test_an_image_has_what_the_sandbox_has_changed_and_nothing_else,
    test_an_image_of_an_image_and_a_name_that_moves,
    test_one_that_ends_meanwhile_says_so_and_leaves_no_image_and_is_not_committed_later,
    test_the_command_line_commits_lists_and_pulls,
    test_too_much_makes_no_image,
    test_two_commits_of_one_sandbox_do_not_meet,
    test_what_was_never_committed_is_not_found,
)
from tests.product.test_git_scrub import (
    swe,
    test_later_commits_are_gone_and_every_object_is_accounted_for,
)
from tests.product.test_git_scrub import test_the_example_prepares_once_and_grades_a_group as the_example
from tests.product.test_image_volumes import (
    test_what_is_written_there_counts_in_sandboxes_of_an_image_of_a_sandbox,
    test_what_was_written_there_is_in_images_of_the_sandbox,
)
from tests.product.test_memory_files import test_an_image_of_a_sandbox_has_what_was_in_tmp
from tests.product.test_prefetch import (
    test_one_that_is_nowhere_fails_and_the_others_do_not,
    test_the_list_has_it_with_size_and_last_use,
    test_what_is_there_is_here_at_once,
)
from tests.product.test_usage import test_cpu_time_is_time_on_processors_or_is_marked_as_more
from tests.support.commits import repository
from tests.support.committing import committing, counted_pulls
from tests.support.images import IMAGE
from tests.support.installed import Installed, own_cluster
from tests.support.product import Kept, keeping
from tests.support.waiting import until

__all__ = [
    "swe",
    "test_a_chain_of_checkpoints_has_all_changes_and_no_more_layers",
    "test_a_deadline_that_passes_leaves_no_image_and_a_sandbox_that_works",
    "test_a_group_starts_from_it",
    "test_a_key_makes_one",
    "test_a_malformed_name_is_refused",
    "test_a_named_image_outlives_the_checkpoint_that_it_comes_from",
    "test_all_stands_still_meanwhile_and_goes_on_after_it",
    "test_an_image_has_what_the_sandbox_has_changed_and_nothing_else",
    "test_an_image_of_a_sandbox_has_what_was_in_tmp",
    "test_an_image_of_an_image_and_a_name_that_moves",
    "test_branches_of_one_sandbox_do_not_see_each_other",
    "test_cpu_time_is_time_on_processors_or_is_marked_as_more",
    "test_later_commits_are_gone_and_every_object_is_accounted_for",
    "test_one_that_ends_meanwhile_says_so_and_leaves_no_image_and_is_not_committed_later",
    "test_one_that_is_nowhere_fails_and_the_others_do_not",
    "test_one_whose_time_is_over_and_one_that_never_was",
    "test_the_command_line_commits_lists_and_pulls",
    "test_the_command_line_makes_shows_and_starts_them",
    "test_the_list_has_it_with_size_and_last_use",
    "test_too_much_makes_no_image",
    "test_two_commits_of_one_sandbox_do_not_meet",
    "test_what_is_there_is_here_at_once",
    "test_what_is_written_there_counts_in_sandboxes_of_an_image_of_a_sandbox",
    "test_what_was_never_committed_is_not_found",
    "test_what_was_written_there_is_in_images_of_the_sandbox",
]
pytestmark = [
    pytest.mark.images,
    pytest.mark.disrupts,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not own_cluster(), reason="a given cluster's nodes are not told of another registry by a test"),
]
RELEASE = "rollbox-commits"
BACK_WITHIN_S = 120.0


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """A release with node agents and a private registry; images of the cluster's registry pass through it."""
    with asyncio.Runner() as runner:
        installing = committing(RELEASE, tmp_path_factory.mktemp("upstream"))
        made = runner.run(installing.__aenter__())
        try:
            yield made
        finally:
            runner.run(installing.__aexit__(None, None, None))


@pytest.fixture(scope="module")
def kept(stack: Installed) -> Iterator[Kept]:
    """The sandbox behind `shared`, of this release."""
    yield from keeping(stack)


@pytest.fixture
async def stranger(stack: Installed) -> AsyncIterator[Client]:
    async with Client(stack.url, stack.strangers_key) as client:
        yield client


@pytest.mark.usefixtures("client")
async def test_the_example_prepares_once_and_its_group_is_one_pull(stack: Installed, swe: str) -> None:
    async with counted_pulls(stack) as blobs:
        await the_example(stack, swe)
    # The image that it has made is new to the node, and its group waits for it: its layer, its configuration.
    print(f"fetched: {Counter(blobs)}")
    assert len(blobs) >= 2
    assert {*Counter(blobs).values()} == {1}


async def test_another_owner_cannot_start_it(source: Sandbox, stranger: Client) -> None:
    async with repository() as name:
        image = await source.commit(name)
        by_name, _, digest = image.partition("@")
        for known in (image, by_name, f"{by_name.rpartition(':')[0]}@{digest}"):
            with pytest.raises(PermissionDenied):
                await stranger.create(known)
        async with await stranger.create(IMAGE) as sandbox:
            with pytest.raises(SandboxError):
                await sandbox.commit(by_name)
            theirs = await sandbox.commit(name)
        assert theirs.partition("@")[0] != by_name
        assert [one for one in await stranger.list() if one.state != "ending"] == []


async def test_another_owner_has_no_such_checkpoint(client: Client, source: Sandbox, stranger: Client) -> None:
    made = await source.commit(checkpoint=True, ttl=600)
    try:
        with pytest.raises(CheckpointNotFound):
            await stranger.create(checkpoint=made.id)
        with pytest.raises(PermissionDenied):
            await stranger.create(made)
        assert not await stranger.remove_image(made.id)
    finally:
        assert await client.remove_image(made.id)
    with pytest.raises(CheckpointNotFound):
        await client.create(checkpoint=made)


async def test_a_large_file_takes_nothing_of_the_sandboxs_memory(client: Client) -> None:
    async with repository() as name:
        async with await client.create(IMAGE, memory="192Mi") as sandbox:
            made = "head -c 300000000 /dev/urandom > /large; truncate -s 500M /holes; sha256sum /large"
            digest = (await sandbox.exec(made, check=True, timeout=120)).stdout.split()[0]
            image = await sandbox.commit(name)
            assert 300_000_000 < image.size_bytes < 310_000_000
            assert (await sandbox.exec("echo alive")).stdout == "alive\n"
        async with await client.create(image, memory="192Mi", start_timeout=180) as copy:
            seen = await copy.exec("sha256sum /large; stat -c %s /holes", timeout=120)
            assert seen.stdout.split() == [digest, "/large", str(500 << 20)]


async def test_many_files_and_removed_folders(client: Client) -> None:
    make = "mkdir /many && cd /many && seq 20000 | xargs -n 500 touch && rm -r /usr/share/zoneinfo /usr/share/doc"
    async with repository() as name:
        async with await client.create(IMAGE, memory="512Mi") as sandbox:
            await sandbox.exec(make, check=True, timeout=120)
            image = await sandbox.commit(name)
        async with await client.create(image, memory="512Mi") as copy:
            seen = await copy.exec("ls /many | wc -l; ls -d /usr/share/zoneinfo /usr/share/doc 2>/dev/null | wc -l")
            assert seen.stdout.split() == ["20000", "0"]


async def test_a_file_of_holes_is_refused_before_it_is_read(source: Sandbox) -> None:
    async with repository() as name:
        await source.exec("truncate -s 1T /holes", check=True)
        with pytest.raises(PayloadTooLarge, match="/holes"):
            await source.commit(name)
        assert (await source.exec("rm /holes && echo alive")).stdout == "alive\n"


async def test_an_agent_that_is_killed_lets_the_sandbox_go_on(client: Client, source: Sandbox) -> None:
    async with repository() as name:
        await source.exec("head -c 700000000 /dev/urandom > /large", check=True, timeout=120)
        committing = asyncio.create_task(source.commit(name, timeout=120))
        await until(_commits, 60)
        for pid in _agents():
            os.kill(pid, signal.SIGKILL)
        (outcome,) = await asyncio.gather(committing, return_exceptions=True)
        # The SDK repeats what failed so, and the agent may be back by then.
        assert isinstance(outcome, (UpstreamTimeout, CommittedImage)), outcome
        async with asyncio.timeout(BACK_WITHIN_S):
            assert (await source.exec("echo goes on", timeout=BACK_WITHIN_S)).stdout == "goes on\n"
        image = await _once_it_is_back(client, source.id, name)
        assert image.size_bytes > 700_000_000
        await source.exec("rm /large", check=True)


async def _commits() -> bool:
    """Whether an agent has the file open into which a commit's layer goes; no sandbox can say so, it stands still."""
    return any("/layer-" in opened for pid in _agents() for opened in _opened(pid))


def _opened(pid: int) -> list[str]:
    try:
        return [str(one.readlink()) for one in Path(f"/proc/{pid}/fd").iterdir()]
    except OSError:
        return []


def _agents() -> list[int]:
    """The processes of node agents of this machine."""
    found = []
    for one in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = one.read_bytes().split(b"\0")
        except OSError:
            continue
        if words[0].endswith(b"rollbox-node") and words[1:2] == [b"agent"]:
            found.append(int(one.parent.name))
    return found


async def _once_it_is_back(client: Client, sandbox_id: str, name: str) -> CommittedImage:
    async with asyncio.timeout(BACK_WITHIN_S):
        while True:
            sandbox = await client.connect(sandbox_id)
            try:
                return await sandbox.commit(name, timeout=120)
            except UpstreamTimeout:
                await asyncio.sleep(1)
