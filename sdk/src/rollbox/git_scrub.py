"""Removes from a Git repository in a sandbox all that is not reachable from one commit, for good.

The repository is taken for hostile: of its configuration, hooks, attributes and references nothing is used but the
names of its branch and tags. A new repository is made beside it that reads the old one's objects and nothing else; only
what is reachable from the commit goes into its one pack. It takes the place of the old one, which is removed whole:
with its objects, packs, references, reflogs, stashes, notes, replacements, grafts, alternates and worktrees.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol
from uuid import uuid4

from rollbox.deadline import Deadline
from rollbox.errors import Conflict, FileNotFound, Internal, InvalidArgument, Unsupported
from rollbox.files import FileInfo, Files
from rollbox.process import Process
from rollbox.result import ExecResult

# Nothing outside of the repository has a say, and no protocol may be spoken: a missing object must not be fetched.
_ENV = {
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_CONFIG_COUNT": "0",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_PARAMETERS": "",
    "GIT_CONFIG_SYSTEM": "/dev/null",
    "GIT_GRAFT_FILE": "/dev/null",
    "GIT_NAMESPACE": "",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_PAGER": "cat",
    "GIT_TEMPLATE_DIR": "",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_TRACE": "0",
    "HOME": "/nonexistent",
    "LC_ALL": "C",
    "XDG_CONFIG_HOME": "/nonexistent",
}
_SETTINGS = (
    "core.attributesFile=/dev/null",
    "core.excludesFile=/dev/null",
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "core.logAllRefUpdates=false",
    "gc.auto=0",
    "protocol.allow=never",
    "safe.directory=*",
)
# Kept of the old configuration: how files are compared, and who commits.
_KEPT = r"^(core\.(filemode|symlinks|ignorecase|precomposeunicode|autocrlf|eol|safecrlf)|user\.(name|email))$"
_PLAIN_VALUE = re.compile(r"[a-z0-9-]{1,32}")
_ID = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_BRANCH = "refs/heads/"
_SUBMODULE = b"160000"
# Alternates of alternates: as many as Git follows.
_MOST_ALTERNATES = 5


class Place(Protocol):
    """The part of a sandbox that is used: `Sandbox`."""

    @property
    def id(self) -> str:
        """Its id."""
        ...

    @property
    def files(self) -> Files:
        """Its files."""
        ...

    @property
    def exec(self) -> Callable[..., Awaitable[ExecResult]]:
        """Runs a command."""
        ...

    @property
    def spawn(self) -> Callable[..., Awaitable[Process]]:
        """Starts a command."""
        ...


@dataclass(frozen=True, slots=True)
class ScrubReport:
    """A repository that was scrubbed.

    Attributes:
        path: of its working tree.
        commit: the only one left, with its ancestors.
        objects: how many are left: each was seen to be reachable from the commit.
        tags: those that are left: of the commit and its ancestors, as plain references.
        submodules: those below it.
        removed: what was removed outside of the repository: alternates.
    """

    path: str
    commit: str
    objects: int
    tags: tuple[str, ...] = ()
    submodules: tuple[ScrubReport, ...] = ()
    removed: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return all of it as JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class _Fresh:
    """A new repository that waits to take its place."""

    new: str
    git: str
    report: ScrubReport
    inner: tuple[_Fresh, ...]


class GitScrub:
    """Scrubs one repository.

    Args:
        sandbox: where it is.
        timeout: seconds for all of it.
        user: the user who does it; None: the owner of the repository.
        remove_alternates: also remove object folders outside of the repository that it borrows from.
    """

    def __init__(self, sandbox: Place, *, timeout: float, user: str | None, remove_alternates: bool) -> None:
        self._sandbox = sandbox
        self._files = sandbox.files
        self._deadline = Deadline(timeout)
        self._user = user
        self._remove_alternates = remove_alternates
        self._made: list[str] = []

    async def scrub(self, path: str, at: str) -> ScrubReport:
        """See `Sandbox.scrub_git`."""
        path = posixpath.normpath(path)
        if not path.startswith("/"):
            raise InvalidArgument(f"path {path!r} must be absolute")
        git = f"{path}/.git"
        top = await self._stat(git)
        self._user = self._user or f"{top.uid}:{top.gid}"
        await self._check_way(path, git)
        await self._check_store(git)
        try:
            commit = await self._commit(git, at, path)
            fresh = await self._fresh(path, git, commit)
        except BaseException:
            for one in self._made:
                await self._files.remove(one, recursive=True, missing_ok=True, user=self._user)
            raise
        return await self._swapped(fresh)

    async def _commit(self, git: str, at: str, path: str) -> str:
        if not at or at.startswith("-") or not at.isprintable() or " " in at:
            raise InvalidArgument(f"at {at[:100]!r} is not the name of a commit")
        found = (await self._git(["rev-parse", "--verify", "--quiet", f"{at}^{{commit}}"], git, ok=(0, 1, 128))).strip()
        if not _ID.fullmatch(found):
            raise InvalidArgument(f"there is no commit {at!r} in {path}")
        head = (await self._git(["rev-parse", "--verify", "--quiet", "HEAD^{commit}"], git, ok=(0, 1, 128))).strip()
        if head != found:
            hint = f"Run `git checkout {at}` in it first: files of later commits would stay in the working tree."
            raise Conflict(f"{path} is at {head or 'no commit'}, not at {found}", hint=hint)
        return found

    async def _fresh(self, path: str, git: str, commit: str) -> _Fresh:
        """Make the new repository of a working tree, and those of its submodules."""
        objects = f"{git}/objects"
        alternates = await self._alternates(objects)
        new = f"{posixpath.dirname(git)}/.git.new-{uuid4().hex[:12]}"
        self._made.append(new)
        await self._git(["init", "--quiet", "--bare", *_format(commit), new], new)
        await self._git(["config", "core.bare", "false"], new)
        await self._copy_shallow(git, new)
        packing = ["pack-objects", "--revs", "--quiet", f"{new}/objects/pack/pack"]
        await self._git(packing, new, borrow=objects, stdin=f"{commit}\n".encode())
        ancestors = await self._lines(["rev-list", commit], new)
        await self._trim_shallow(new, ancestors)
        await self._refer(git, new, commit)
        tags = await self._tag(git, new, ancestors)
        await self._configure(git, new)
        await self._git(["read-tree", commit], new)
        report = ScrubReport(path, commit, await self._proven(new, commit), tags, removed=alternates)
        return _Fresh(new, git, report, tuple([one async for one in self._submodules(path, git, new, commit)]))

    async def _submodules(self, path: str, git: str, new: str, commit: str) -> AsyncIterator[_Fresh]:
        listed = await self._git_bytes(["ls-tree", "-r", "-z", "--full-tree", commit], new)
        for entry in listed.split(b"\0"):
            about, _, name = entry.partition(b"\t")
            if not about.startswith(_SUBMODULE):
                continue
            below = f"{path}/{name.decode('utf-8', 'surrogateescape')}"
            if (inner := await self._module(below, git)) is not None:
                await self._check_way(path, below)
                await self._check_way(git if inner.startswith(f"{git}/") else below, inner)
                await self._check_store(inner)
                yield await self._fresh_module(below, inner, about.split()[2].decode())

    async def _fresh_module(self, below: str, inner: str, commit: str) -> _Fresh:
        made = await self._fresh(below, inner, commit)
        # A submodule's repository may be inside of its superproject's, which goes: it comes to its own working tree.
        return _Fresh(made.new, f"{below}/.git", made.report, made.inner)

    async def _module(self, below: str, git: str) -> str | None:
        """The repository of a submodule's working tree; None: there is none."""
        try:
            found = await self._files.stat(f"{below}/.git", follow=False, user=self._user)
        except FileNotFound:
            return None
        if found.kind == "directory":
            return f"{below}/.git"
        read = await self._files.read(f"{below}/.git", length=4096, user=self._user)
        told = read.decode("utf-8", "surrogateescape")
        inner = posixpath.normpath(posixpath.join(below, told.removeprefix("gitdir:").strip()))
        if found.kind != "file" or not told.startswith("gitdir:") or not inner.startswith(f"{git}/modules/"):
            raise Unsupported(f"the repository of the submodule {below} is neither in it nor in {git}/modules")
        return inner

    async def _proven(self, new: str, commit: str) -> int:
        """How many objects there are, each of which was seen to be reachable from the commit, and each of which is."""
        there = await self._lines(["cat-file", "--batch-all-objects", "--batch-check=%(objectname)"], new)
        reachable = await self._lines(["rev-list", "--objects", "--no-object-names", commit], new)
        if there != reachable:
            detail = f"{len(there - reachable)} objects are left that {commit} does not reach"
            raise Internal(f"{detail}, and {len(reachable - there)} are missing: nothing was changed")
        return len(there)

    async def _swapped(self, fresh: _Fresh) -> ScrubReport:
        inner = [await self._swapped(one) for one in fresh.inner]
        old = f"{posixpath.dirname(fresh.git)}/.git.old-{uuid4().hex[:12]}"
        await self._files.move(fresh.git, old, user=self._user)
        await self._files.move(fresh.new, fresh.git, user=self._user)
        await self._files.remove(old, recursive=True, user=self._user)
        for folder in fresh.report.removed:
            await self._files.remove(folder, recursive=True, missing_ok=True, user=self._user)
        # What it is now is what was seen before, and nothing else has come: it is looked at once more in its place.
        objects = await self._proven(fresh.git, fresh.report.commit)
        told = fresh.report
        return ScrubReport(told.path, told.commit, objects, told.tags, tuple(inner), told.removed)

    async def _refer(self, git: str, new: str, commit: str) -> None:
        branch = (await self._git(["symbolic-ref", "--quiet", "HEAD"], git, ok=(0, 1, 128))).strip()
        if branch.startswith(_BRANCH):
            await self._git(["update-ref", branch, commit], new)
            await self._git(["symbolic-ref", "HEAD", branch], new)
        else:
            await self._git(["update-ref", "--no-deref", "HEAD", commit], new)

    async def _tag(self, git: str, new: str, ancestors: frozenset[str]) -> tuple[str, ...]:
        """Keep the tags of the commit and its ancestors; what a tag says may be younger than what it stands for."""
        form = "--format=%(refname) %(objectname) %(*objectname)"
        kept: dict[str, str] = {}
        for line in (await self._git(["for-each-ref", form, "refs/tags"], git)).splitlines():
            name, *ids = line.split(" ")
            if (found := next((one for one in reversed(ids) if one), "")) in ancestors:
                kept[name] = found
        if kept:
            commands = "".join(f"create {name} {found}\n" for name, found in kept.items())
            await self._git(["update-ref", "--stdin"], new, stdin=commands.encode("utf-8", "surrogateescape"))
        return tuple(name.removeprefix("refs/tags/") for name in kept)

    async def _configure(self, git: str, new: str) -> None:
        asked = ["config", "--file", f"{git}/config", "--no-includes", "--null", "--get-regexp", _KEPT]
        for entry in (await self._git(asked, new, ok=(0, 1, 3, 128))).split("\0"):
            name, _, value = entry.partition("\n")
            if name.startswith("user.") or (name and _PLAIN_VALUE.fullmatch(value)):
                await self._git(["config", name, value], new)

    async def _copy_shallow(self, git: str, new: str) -> None:
        """A shallow clone has no ancestors of some commits: without being told so, Git would miss them."""
        try:
            told = (await self._files.read(f"{git}/shallow", user=self._user)).decode("ascii", "replace")
        except FileNotFound:
            return
        await self._write_shallow(new, [one for one in told.split() if _ID.fullmatch(one)])

    async def _trim_shallow(self, new: str, ancestors: frozenset[str]) -> None:
        try:
            told = (await self._files.read(f"{new}/shallow", user=self._user)).decode()
        except FileNotFound:
            return
        await self._write_shallow(new, [one for one in told.split() if one in ancestors])

    async def _write_shallow(self, new: str, ids: Sequence[str]) -> None:
        await self._files.write(f"{new}/shallow", "".join(f"{one}\n" for one in ids), user=self._user)

    async def _alternates(self, objects: str, depth: int = 0) -> tuple[str, ...]:
        """The object folders that a repository borrows from, outside of it."""
        try:
            told = await self._files.read(f"{objects}/info/alternates", user=self._user)
        except FileNotFound:
            return ()
        lines = told.decode("utf-8", "surrogateescape").splitlines()
        folders = [posixpath.normpath(posixpath.join(objects, one)) for one in lines if one and not one.startswith("#")]
        if not self._remove_alternates or depth >= _MOST_ALTERNATES:
            hint = "Pass remove_alternates=True to remove these folders too, from all that use them."
            raise Conflict(f"{objects} borrows objects, which would stay: {', '.join(folders)[:500]}", hint=hint)
        for folder in folders:
            if posixpath.basename(folder) != "objects":
                raise Unsupported(f"{objects} borrows objects from {folder}, which is no folder of objects")
            await self._check_objects(folder)
        more = [found for folder in folders for found in await self._alternates(folder, depth + 1)]
        return tuple(dict.fromkeys((*folders, *more)))

    async def _check_way(self, below: str, folder: str) -> None:
        """Refuse links on the way to a folder."""
        parts = posixpath.relpath(folder, below).split("/")
        for count in range(len(parts) + 1):
            await self._check_folder(posixpath.join(below, *parts[:count]))

    async def _check_store(self, git: str) -> None:
        """Refuse what shares its objects with other repositories."""
        for name in ("commondir", "gitdir"):
            if await self._files.exists(f"{git}/{name}", follow=False, user=self._user):
                raise Unsupported(f"{git} belongs to a worktree: scrub the repository that it is one of")
        await self._check_objects(f"{git}/objects")

    async def _check_objects(self, objects: str) -> None:
        """Refuse links among the objects: what they lead to would stay."""
        await self._check_folder(objects)
        for one in (objects, *[one.path for one in await self._listed(objects) if one.kind == "directory"]):
            for found in await self._listed(one):
                if found.kind not in ("file", "directory"):
                    raise Unsupported(f"{found.path} is a {found.kind}: what it leads to would stay")

    async def _check_folder(self, path: str) -> None:
        found = await self._files.stat(path, follow=False, user=self._user)
        if found.kind != "directory":
            raise Unsupported(f"{path} is a {found.kind}, not a directory: what it leads to would stay")

    async def _listed(self, path: str) -> Sequence[FileInfo]:
        found = await self._files.list(path, limit=100_000, user=self._user)
        if found.truncated:
            raise Unsupported(f"{path} has more than 100000 entries", hint="Run `git repack -a -d` in it first.")
        return found

    async def _stat(self, path: str) -> FileInfo:
        try:
            return await self._files.stat(path, follow=False, user=self._user)
        except FileNotFound as error:
            raise FileNotFound(f"there is no repository: {error.detail}", hint="Name its working tree.") from error

    async def _git(
        self, command: Sequence[str], git: str, *, borrow: str = "", stdin: bytes = b"", ok: Sequence[int] = (0,)
    ) -> str:
        told = await self._git_bytes(command, git, borrow=borrow, stdin=stdin, ok=ok)
        return told.decode("utf-8", "surrogateescape")

    async def _git_bytes(
        self, command: Sequence[str], git: str, *, borrow: str = "", stdin: bytes = b"", ok: Sequence[int] = (0,)
    ) -> bytes:
        """Run Git on one repository; `borrow` is a folder of objects that it reads too."""
        result = await self._sandbox.exec(
            _argv(command),
            cwd="/",
            env=_environment(git, borrow),
            user=self._user,
            stdin=stdin,
            timeout=self._deadline.left_s() or 0.001,
            max_output_bytes=_MOST_OUTPUT_BYTES,
        )
        if result.end == "deadline":
            result.check()
        if result.exit_code not in ok or result.stdout_truncated:
            said = result.stderr.strip()[-500:] or f"it wrote more than {_MOST_OUTPUT_BYTES} bytes"
            raise Conflict(f"git {command[0]} failed in {git}: {said}", sandbox_id=self._sandbox.id)
        return result.stdout_bytes

    async def _lines(self, command: Sequence[str], git: str) -> frozenset[str]:
        """The lines that Git writes, of which there may be millions."""
        found: set[str] = set()
        left_s = self._deadline.left_s() or 0.001
        spawned = self._sandbox.spawn(
            _argv(command), cwd="/", env=_environment(git), user=self._user, stdin=False, timeout=left_s
        )
        async with await spawned as process:
            async for line in process.stdout.lines():
                found.add(line.strip())
            (await process.wait()).check()
        return frozenset(found)


_MOST_OUTPUT_BYTES = 16 << 20


def _argv(command: Sequence[str]) -> list[str]:
    return ["git", *(part for one in _SETTINGS for part in ("-c", one)), *command]


def _environment(git: str, borrow: str = "") -> Mapping[str, str]:
    # Set, since the image may set them.
    here = {"GIT_DIR": git, "GIT_COMMON_DIR": git, "GIT_INDEX_FILE": f"{git}/index"}
    return {**_ENV, **here, "GIT_OBJECT_DIRECTORY": f"{git}/objects", "GIT_ALTERNATE_OBJECT_DIRECTORIES": borrow}


def _format(commit: str) -> Sequence[str]:
    return ("--object-format=sha256",) if len(commit) == 64 else ()
