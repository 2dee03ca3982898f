"""A repository in a sandbox is scrubbed by the sandbox's own Git, and committed; the example grades from it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rollbox import Client, Sandbox
from rollbox.errors import Conflict, InvalidArgument
from tests.support.command_line import answer
from tests.support.commits import ON_CLUSTER, commit, made_where_offered, removed, repository
from tests.support.images import pushed
from tests.support.stack import Product
from tests.support.waiting import until

ROOT = Path(__file__).parents[2]
SECRET = "the answer of the future"
# Samples of each of the example's four policies; a start on a cluster costs seconds of a core.
EACH = 2 if ON_CLUSTER else 4
PREPARE = f"""
set -eu
umask 022
mkdir -p /home/dev/repo && cd /home/dev/repo
git init -q -b main . && git config user.name a && git config user.email a@b
echo one > a && git add -A && git commit -q -m one && git tag v1
echo '{SECRET}' > a && git commit -q -am '{SECRET}' && git stash list && git branch later
git checkout -q v1 && git gc -q
printf '#!/bin/sh\\ntouch /sprung\\n' > .git/hooks/post-checkout && chmod 755 .git/hooks/post-checkout
git config core.fsmonitor 'touch /sprung; false' && git config core.pager 'touch /sprung'
chown -R 1000:1000 /home/dev
"""
LOOK = """
cd /home/dev/repo
git cat-file --batch-all-objects --batch-check='%(objectname)' | sort > /tmp/all
git rev-list --objects --no-object-names HEAD | sort > /tmp/reachable
cmp /tmp/all /tmp/reachable && echo same
git cat-file --batch-all-objects --batch | grep -c 'answer of the future' || true
git log --all --oneline | wc -l; git status --porcelain; ls /sprung 2>/dev/null || true; stat -c %u .git
"""


@pytest.fixture(scope="session")
def swe() -> str:
    """An image with Git."""
    if ON_CLUSTER:
        return pushed("swe")
    subprocess.run([ROOT / "images" / "runtimes" / "swe" / "build.sh"], check=True)
    return "localhost/rollbox/swe:1"


@made_where_offered
async def test_later_commits_are_gone_and_every_object_is_accounted_for(
    client: Client, stack: Product, swe: str
) -> None:
    async with repository() as name, await client.create(swe, memory="512Mi") as sandbox:
        await sandbox.exec(PREPARE, check=True)
        with pytest.raises(Conflict, match="check"):
            await sandbox.scrub_git("/home/dev/repo", at="later")
        report = await sandbox.scrub_git("/home/dev/repo", at="v1")
        assert (report.objects, report.tags) == (3, ("v1",))
        seen = (await sandbox.exec(LOOK, user="1000")).stdout.split()
        assert seen == ["same", "0", "1", "1000"]
        told = await answer(stack, "image", "scrub-git", sandbox.id, "/home/dev/repo")
        assert (told["commit"], told["objects"]) == (report.commit, 3)
        image = await commit(sandbox, name, scrub_git={"/home/dev/repo": "v1"})
        async with await client.create(image, memory="512Mi") as copy:
            assert (await copy.exec(LOOK, user="1000")).stdout.split() == seen


async def test_an_image_without_git_says_so(shared: Sandbox) -> None:
    if (await shared.exec("command -v git")).ok:
        pytest.skip("this image has Git")
    await shared.exec("mkdir -p /tmp/repo/.git/objects", check=True)
    with pytest.raises(InvalidArgument, match="git"):
        await shared.scrub_git("/tmp/repo")


@made_where_offered
@pytest.mark.usefixtures("client")
async def test_the_example_prepares_once_and_grades_a_group(stack: Product, swe: str) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(ROOT / "sdk" / "examples" / "swe.py"),
        "--image",
        swe,
        "--each",
        str(EACH),
        env={**os.environ, "ROLLBOX_URL": stack.url, "ROLLBOX_API_KEY": stack.api_key},
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate()
    assert process.returncode == 0, out.decode()
    assert f"graded {4 * EACH} samples" in out.decode(), out.decode()
    assert (out.count(b"cheat  0"), out.count(b"mend   1")) == (EACH, EACH), out.decode()
    if not ON_CLUSTER:
        await until(lambda: removed("example-swe"))
