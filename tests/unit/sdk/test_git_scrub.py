"""What is left of a repository that was scrubbed: real repositories, hostile ones too, and this machine's Git."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from rollbox import Sandbox
from rollbox.errors import Conflict, FileNotFound, InvalidArgument, Unsupported
from rollbox.git_scrub import GitScrub, ScrubReport
from tests.support.local_sandbox import LocalSandbox

IDENTITY = {
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@b",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@b",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_ALLOW_PROTOCOL": "file",
}


def git(folder: Path, *arguments: str, check: bool = True) -> str:
    command = ["git", "-c", "init.defaultBranch=main", "-C", str(folder), *arguments]
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", **IDENTITY}
    done = subprocess.run(command, env=environment, check=check, capture_output=True)
    return done.stdout.decode("utf-8", "surrogateescape").strip()


def commit(folder: Path, name: str, content: str) -> str:
    (folder / name).write_text(content)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", f"{name} {content}")
    return git(folder, "rev-parse", "HEAD")


SECRET = "the answer of the future"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two commits that stay, and much behind them that has to go."""
    repo = tmp_path / "repo"
    repo.mkdir()
    git(repo, "init", "-q")
    commit(repo, "a", "one")
    git(repo, "tag", "v1")
    git(repo, "tag", "-a", "v1-annotated", "-m", f"{SECRET} in a tag")
    commit(repo, "a", "two")
    git(repo, "branch", "here")
    commit(repo, "solution", SECRET)
    git(repo, "tag", "v2")
    git(repo, "notes", "add", "-m", f"{SECRET} in a note")
    git(repo, "checkout", "-q", "-b", "other")
    commit(repo, "other", f"{SECRET} on a branch")
    (repo / "other").write_text(f"{SECRET} in a stash")
    git(repo, "stash", "-q")
    git(repo, "checkout", "-q", "here")
    git(repo, "update-ref", "FETCH_HEAD", "v2")
    (repo / ".git" / "ORIG_HEAD").write_text(git(repo, "rev-parse", "v2") + "\n")
    return repo


async def scrub(repo: Path, at: str = "HEAD", sandbox: LocalSandbox | None = None, **options: Any) -> ScrubReport:
    options = {"timeout": 60, "user": None, "remove_alternates": False, **options}
    return await GitScrub(cast("Sandbox", sandbox or LocalSandbox()), **options).scrub(str(repo), at)


def objects(repo: Path) -> dict[str, bytes]:
    """Every object that a repository has, with its content."""
    names = git(repo, "cat-file", "--batch-all-objects", "--batch-check=%(objectname) %(objecttype)").split("\n")
    read = {one.split()[0]: git(repo, "cat-file", one.split()[1], one.split()[0]) for one in names}
    return {name: content.encode("utf-8", "surrogateescape") for name, content in read.items()}


def reachable(repo: Path, at: str) -> set[str]:
    return set(git(repo, "rev-list", "--objects", "--no-object-names", at).split("\n"))


def left_beside(repo: Path) -> list[str]:
    """What a scrub has left in the working tree."""
    return [one.name for one in repo.iterdir() if one.name.startswith(".git.")]


def check_clean(repo: Path, at: str) -> None:
    """Nothing of later commits is in the repository, in whatever form, and it is whole."""
    found = objects(repo)
    assert found.keys() == reachable(repo, at)
    assert not [name for name, content in found.items() if SECRET.encode() in content]
    assert git(repo, "rev-list", "--all").split("\n") == git(repo, "rev-list", at).split("\n")
    git(repo, "fsck", "--full", "--strict")
    assert git(repo, "stash", "list") == ""
    assert git(repo, "reflog", "--all") == ""
    left = {one.name for one in (repo / ".git").iterdir()}
    assert left <= {"HEAD", "config", "index", "objects", "refs", "packed-refs", "shallow"}, left
    assert left_beside(repo) == []


async def test_all_that_came_later_is_gone_and_the_rest_works(repository: Path) -> None:
    at = git(repository, "rev-parse", "here")
    (repository / "untracked").write_text("mine")
    (repository / "a").write_text("changed")
    report = await scrub(repository, "here")
    assert (report.path, report.commit, report.tags) == (str(repository), at, ("v1", "v1-annotated"))
    check_clean(repository, at)
    assert report.objects == len(objects(repository))
    assert git(repository, "status", "--porcelain") == "M a\n?? untracked"
    assert git(repository, "symbolic-ref", "HEAD") == "refs/heads/here"
    assert git(repository, "describe", "--tags").startswith("v1")
    git(repository, "commit", "-q", "-am", "goes on")


async def test_a_detached_head_stays_detached(repository: Path) -> None:
    git(repository, "checkout", "-q", "here~1")
    at = git(repository, "rev-parse", "HEAD")
    await scrub(repository, at)
    check_clean(repository, at)
    assert git(repository, "symbolic-ref", "-q", "HEAD", check=False) == ""


@pytest.mark.parametrize("at", ["other", "v2", "", "-x", "HEAD --", "0" * 40, "no-such"])
async def test_a_commit_that_the_working_tree_is_not_at_is_refused(repository: Path, at: str) -> None:
    before = objects(repository)
    with pytest.raises((Conflict, InvalidArgument)):
        await scrub(repository, at)
    assert objects(repository) == before
    assert left_beside(repository) == []


async def test_where_there_is_no_repository_that_is_said(tmp_path: Path) -> None:
    with pytest.raises(FileNotFound, match="no repository"):
        await scrub(tmp_path)
    with pytest.raises(InvalidArgument, match="absolute"):
        await GitScrub(cast("Sandbox", LocalSandbox()), timeout=1, user=None, remove_alternates=False).scrub("x", "a")


def set_traps(repo: Path, trap: Path) -> None:
    """Everything in a repository that could run a program."""
    script = repo / ".git" / "trap.sh"
    script.write_text(f"#!/bin/sh\ntouch {trap}\n")
    script.chmod(0o755)
    hooks = repo / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    for name in ("post-checkout", "reference-transaction", "post-index-change", "pre-auto-gc", "fsmonitor-watchman"):
        (hooks / name).write_text(script.read_text())
        (hooks / name).chmod(0o755)
    for name in (
        "core.fsmonitor",
        "core.pager",
        "core.editor",
        "core.sshCommand",
        "core.alternateRefsCommand",
        "diff.external",
        "gpg.program",
        "uploadpack.packObjectsHook",
        "filter.x.clean",
        "filter.x.smudge",
        "filter.x.process",
        "alias.rev-parse",
        "alias.cat-file",
        "credential.helper",
    ):
        git(repo, "config", name, f"!{script}" if name.startswith("alias") else str(script))
    more = f'[remote "origin"]\n url = ext::sh {script}\n promisor = true\n[protocol]\n allow = always\n'
    config = repo / ".git" / "config"
    config.write_text(config.read_text() + more)
    (repo / ".git" / "info").mkdir(exist_ok=True)
    (repo / ".git" / "info" / "attributes").write_text("* filter=x diff=x\n")


async def test_a_repository_runs_nothing(repository: Path, tmp_path: Path) -> None:
    trap = tmp_path / "sprung"
    set_traps(repository, trap)
    at = git(repository, "-c", "core.fsmonitor=false", "rev-parse", "here")
    trap.unlink(missing_ok=True)
    await scrub(repository, "here")
    assert not trap.exists()
    check_clean(repository, at)
    assert "trap" not in (repository / ".git" / "config").read_text()


async def test_variables_of_the_image_have_no_say(repository: Path, tmp_path: Path) -> None:
    sandbox = LocalSandbox()
    sandbox.env = {
        "GIT_DIR": str(tmp_path / "elsewhere"),
        "GIT_OBJECT_DIRECTORY": str(tmp_path / "elsewhere"),
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(repository / ".git" / "objects"),
        "GIT_INDEX_FILE": str(tmp_path / "index"),
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "core.fsmonitor",
        "GIT_CONFIG_VALUE_0": f"touch {tmp_path}/sprung",
        "GIT_TRACE": str(tmp_path / "trace"),
    }
    at = git(repository, "rev-parse", "here")
    await scrub(repository, "here", sandbox)
    check_clean(repository, at)
    assert os.listdir(tmp_path) == ["repo"]  # noqa: PTH208


def replace(repo: Path) -> None:
    git(repo, "replace", "here", "other")


def graft(repo: Path) -> None:
    (repo / ".git" / "info").mkdir(exist_ok=True)
    (repo / ".git" / "info" / "grafts").write_text(f"{git(repo, 'rev-parse', 'here')} {git(repo, 'rev-parse', 'v2')}\n")


def pack(repo: Path) -> None:
    git(repo, "gc", "-q", "--aggressive")
    git(repo, "pack-refs", "--all")


def loosen(repo: Path) -> None:
    git(repo, "repack", "-q", "-a", "-d", "-k")
    for one in (repo / ".git" / "objects" / "pack").glob("*.pack"):
        moved = repo / "moved.pack"
        one.rename(moved)
        with moved.open("rb") as stream:
            environment = {"PATH": os.environ["PATH"], **IDENTITY}
            subprocess.run(["git", "-C", repo, "unpack-objects", "-q"], stdin=stream, env=environment, check=True)
        moved.unlink()


def other_objects(repo: Path) -> None:
    """Objects that nothing refers to."""
    environment = {"PATH": os.environ["PATH"], **IDENTITY}
    command = ["git", "-C", str(repo), "hash-object", "-w", "--stdin"]
    subprocess.run(command, input=SECRET.encode(), env=environment, check=True)


def worktree(repo: Path) -> None:
    git(repo, "worktree", "add", "-q", str(repo.parent / "linked"), "other")


def bisect(repo: Path) -> None:
    for name in ("BISECT_HEAD", "MERGE_HEAD", "CHERRY_PICK_HEAD", "refs/original/x", "refs/pull/1/head"):
        git(repo, "update-ref", name, "v2")


@pytest.mark.parametrize("deed", [replace, graft, pack, loosen, other_objects, worktree, bisect])
async def test_no_form_of_keeping_them_keeps_later_commits(repository: Path, deed: Callable[[Path], None]) -> None:
    at = git(repository, "rev-parse", "here")
    deed(repository)
    await scrub(repository, at)
    check_clean(repository, at)


async def test_what_is_borrowed_from_elsewhere_is_refused_or_removed(repository: Path, tmp_path: Path) -> None:
    borrower = tmp_path / "borrower"
    git(tmp_path, "clone", "-q", "--shared", "-b", "here", str(repository), str(borrower))
    at = git(borrower, "rev-parse", "HEAD")
    with pytest.raises(Conflict, match=str(repository / ".git" / "objects")):
        await scrub(borrower)
    report = await scrub(borrower, remove_alternates=True)
    assert report.removed == (str(repository / ".git" / "objects"),)
    assert not (repository / ".git" / "objects").exists()
    check_clean(borrower, at)


async def test_links_among_the_objects_are_refused(repository: Path, tmp_path: Path) -> None:
    real = tmp_path / "real"
    (repository / ".git").rename(real)
    (repository / ".git").symlink_to(real)
    with pytest.raises(Unsupported, match="symlink"):
        await scrub(repository)
    (repository / ".git").unlink()
    real.rename(repository / ".git")
    for name in ("objects", "objects/pack"):
        (repository / ".git" / name).rename(real)
        (repository / ".git" / name).symlink_to(real)
        with pytest.raises(Unsupported, match="symlink"):
            await scrub(repository)
        (repository / ".git" / name).unlink()
        real.rename(repository / ".git" / name)
    loose = next(one for one in (repository / ".git" / "objects").glob("??/*"))
    loose.rename(real)
    loose.symlink_to(real)
    with pytest.raises(Unsupported, match="symlink"):
        await scrub(repository)


async def test_a_linked_working_tree_is_refused(repository: Path, tmp_path: Path) -> None:
    worktree(repository)
    with pytest.raises(Unsupported, match="not a directory"):
        await scrub(tmp_path / "linked")


async def test_a_shallow_clone_stays_one(repository: Path, tmp_path: Path) -> None:
    shallow = tmp_path / "shallow"
    git(tmp_path, "clone", "-q", "--depth", "1", "--no-single-branch", f"file://{repository}", str(shallow))
    git(shallow, "checkout", "-q", "here")
    at = git(shallow, "rev-parse", "HEAD")
    await scrub(shallow, at)
    check_clean(shallow, at)
    assert git(shallow, "rev-list", "--count", "HEAD") == "1"


async def test_submodules_are_scrubbed_too(repository: Path, tmp_path: Path) -> None:
    outer = tmp_path / "outer"
    outer.mkdir()
    git(outer, "init", "-q")
    git(outer, "submodule", "--quiet", "add", "-b", "here", str(repository), "inner dir/inner")
    at = commit(outer, "x", "y")
    report = await scrub(outer)
    check_clean(outer, at)
    inner = outer / "inner dir" / "inner"
    (told,) = report.submodules
    assert (told.path, told.commit) == (str(inner), git(repository, "rev-parse", "here"))
    check_clean(inner, told.commit)
    assert git(outer, "status", "--porcelain") == ""


async def test_an_own_configuration_of_how_files_are_compared_stays(repository: Path) -> None:
    git(repository, "config", "core.autocrlf", "input")
    git(repository, "config", "user.name", "-x\ny")
    git(repository, "config", "core.eol", "$(touch /tmp/x)")
    await scrub(repository, "here")
    assert git(repository, "config", "core.autocrlf") == "input"
    assert git(repository, "config", "user.name") == "-x\ny"
    assert git(repository, "config", "core.eol", check=False) == ""


async def test_an_object_that_is_missing_stops_it_before_anything_is_changed(repository: Path) -> None:
    blob = git(repository, "rev-parse", "here~1:a")
    (repository / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    head = git(repository, "rev-parse", "HEAD")
    with pytest.raises(Conflict, match="pack-objects"):
        await scrub(repository, "here")
    assert git(repository, "rev-parse", "HEAD") == head
    assert left_beside(repository) == []


async def test_an_empty_repository_has_no_commit(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    with pytest.raises(InvalidArgument, match="no commit"):
        await scrub(tmp_path)


async def test_a_cancelled_scrub_leaves_the_repository_as_it_was(repository: Path) -> None:
    before = objects(repository)
    scrubbing = asyncio.create_task(scrub(repository, "here"))
    await asyncio.sleep(0.02)  # speed: wherever it is by then, or after it, the repository is a whole one
    scrubbing.cancel()
    await asyncio.wait([scrubbing])
    assert objects(repository).keys() in (before.keys(), reachable(repository, "here"))
