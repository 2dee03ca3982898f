"""The options of a grading, checked. Pure, but for a look at local files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rollbox import request
from rollbox.dataset import Mounts
from rollbox.egress import Egress
from rollbox.errors import InvalidArgument
from rollbox.files import initial, paths
from rollbox.grading.tree import Rules, covers
from rollbox.options import CommandSettings, CreateSpec, Lifetime, Pull, ResourceOptions, Resources
from rollbox.quantity import DEFAULT_CPU, DEFAULT_MEMORY, Cpu, Memory, Size, parse_memory
from rollbox.request import Command, Directory, Variables

_MOST_TREES = 32
_OF_THE_KERNEL = ("/proc", "/sys", "/dev")
# Beside start, hand-over and tests, until the server deletes a grader whose client is gone.
_TTL_BESIDE_S = 600


class GradeOptions(ResourceOptions, total=False):
    """The options of `Sandbox.grade`; described at `Grading`."""

    run: Command
    take: str | Sequence[str]
    files: Mapping[Any, bytes | str | os.PathLike[str]] | None
    exclude: str | Sequence[str]
    links_to: str | Sequence[str]
    reward_files: str | Sequence[str]
    checkpoint: str | None
    egress: Egress | None
    env: Variables | None
    cwd: Directory | None
    user: str | None
    take_user: str | None
    timeout: float
    handover_timeout: float
    max_bytes: Size
    max_entries: int
    max_path_bytes: int
    max_output_bytes: int | None
    keep: bool
    labels: Mapping[str, str] | None
    start_timeout: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Grading:
    """What a grading is asked to do.

    Attributes:
        image: of the grader.
        run: the tests: a string for the grader's shell, or the arguments themselves.
        take: absolute paths of the solver's, directories or files, which take the place of those of the grader.
        files: the grader's own, by absolute path: bytes, text, or a `Path` to a local file or directory. Written after
            the hand-over; nothing of the solver's stands where they are.
        exclude: absolute paths below those of `take` that stay as the grader's image has them.
        links_to: absolute paths, outside what is taken, that links of the solver's may lead to, like "/usr/bin".
        reward_files: where the tests leave the reward; the first one that is there counts, and none: the exit code. For
            tasks in Harbor's format: `rollbox.grading.HARBOR_REWARD_FILES`.
        checkpoint: in place of an image, as for `Sandbox.create`.
        egress: what the grader may reach.
        env: variables of the tests.
        cwd: their directory.
        user: who they run as, and whom what is taken belongs to; None: the user of the image.
        take_user: with whose rights the solver's files are read; None: the solver's own user.
        timeout: seconds for the tests.
        handover_timeout: seconds to stop the solver, to hand over, and for the grader's own files, together.
        max_bytes, max_entries, max_path_bytes: the most that all that is taken may have: bytes of data; files,
            directories and links; bytes of a path.
        max_output_bytes: how much of stdout and of stderr of the tests to keep, each.
        keep: leave the solver's sandbox as it is, with no process in it; False: delete it once it has handed over.
        mounts: data sets of the grader's, as for `Sandbox.create`; none of them within what is taken.
        cpu, memory, pids, disk, gpu, node_selector, pull, network, labels, start_timeout: of the grader, as for
            `Sandbox.create`.

    Raises:
        InvalidArgument: one of them is invalid.
    """

    image: str | None
    run: Command
    take: str | Sequence[str] = ()
    files: Mapping[Any, bytes | str | os.PathLike[str]] | None = None
    exclude: str | Sequence[str] = ()
    links_to: str | Sequence[str] = ()
    reward_files: str | Sequence[str] = ()
    checkpoint: str | None = None
    egress: Egress | None = "offline"
    env: Variables | None = None
    cwd: Directory | None = None
    user: str | None = None
    take_user: str | None = None
    timeout: float = 600
    handover_timeout: float = 120
    max_bytes: Size = "1Gi"
    max_entries: int = 100_000
    max_path_bytes: int = 1024
    max_output_bytes: int | None = None
    keep: bool = True
    cpu: Cpu = DEFAULT_CPU
    memory: Memory = DEFAULT_MEMORY
    pids: int | None = None
    disk: Size | None = None
    gpu: int = 0
    node_selector: Mapping[str, str] | None = None
    pull: Pull = "auto"
    network: str | None = None
    mounts: Mounts | None = None
    labels: Mapping[str, str] | None = None
    start_timeout: float = 120

    def __post_init__(self) -> None:
        self.rules()
        self.contents()
        self.size_limit()
        self.spec("").to_json()
        request.exec_body(
            self.run,
            "x",
            cwd=None,
            env=None,
            user=None,
            stdin=b"",
            timeout=self.timeout,
            max_output_bytes=self.max_output_bytes,
        )
        request.milliseconds("handover_timeout", self.handover_timeout)
        request.count("max_entries", self.max_entries, most=1_000_000)
        request.count("max_path_bytes", self.max_path_bytes, most=4096)
        mounted = [os.fspath(path) for path in self.mounts or ()]
        if met := [path for path in mounted for tree in self.trees() if covers(tree, path) or covers(path, tree)]:
            hint = "What is taken is written where it was: mount beside that."
            raise InvalidArgument(f"the mount at {met[0]!r} meets what is taken from the solver", hint=hint)
        if lost := [path for path in self.rewards() for tree in self.trees() if covers(tree, path)]:
            hint = "Leave the reward outside of what is taken, where no file of the solver's can stand."
            raise InvalidArgument(f"the reward file {lost[0]!r} is within what is taken from the solver", hint=hint)

    def trees(self) -> tuple[str, ...]:
        """The paths that are taken.

        Raises:
            InvalidArgument: they are none that can be taken together.
        """
        trees = _paths("take", self.take)
        if len(trees) > _MOST_TREES:
            raise InvalidArgument(
                f"take has {len(trees)} paths, over {_MOST_TREES}", hint="Take a directory above them."
            )
        if kernel := [tree for tree in trees for one in _OF_THE_KERNEL if covers(one, tree)]:
            raise InvalidArgument(f"take has {kernel[0]!r}, which is the kernel's: nothing there was made by a program")
        if within := [(one, other) for one in trees for other in trees if one != other and covers(one, other)]:
            raise InvalidArgument(f"take has {within[0][1]!r}, which is within {within[0][0]!r}")
        return trees

    def excluded(self) -> tuple[str, ...]:
        """The paths that stay as the grader's image has them."""
        return _paths("exclude", self.exclude)

    def rules(self) -> Rules:
        """What of that is left out.

        Raises:
            InvalidArgument: something is left out that is not taken, or all of it is.
        """
        trees, excluded = self.trees(), self.excluded()
        if outside := [one for one in excluded if not any(one != tree and covers(tree, one) for tree in trees)]:
            raise InvalidArgument(f"exclude has {outside[0]!r}, which is below none of what is taken")
        own = (*excluded, *(path for path in self.contents() if any(covers(tree, path) for tree in trees)))
        if whole := [one for one in own if one in trees]:
            raise InvalidArgument(f"files has {whole[0]!r}, which is taken from the solver as a whole")
        return Rules(trees, _paths("links_to", self.links_to), own)

    def rewards(self) -> tuple[str, ...]:
        """The paths of the rewards."""
        return _paths("reward_files", self.reward_files)

    def contents(self) -> dict[str, bytes | Path]:
        """The grader's own files, by path; a local directory stays a path.

        Raises:
            InvalidArgument: a path or a content is none.
        """
        files = self.files or {}
        if not isinstance(files, Mapping):
            raise InvalidArgument(f"files is {type(files).__name__}, not a mapping from path to content")
        directories = {
            _plain("a path in files", os.fspath(path)): Path(content)
            for path, content in files.items()
            if isinstance(content, os.PathLike) and Path(content).is_dir()
        }
        rest = {path: content for path, content in files.items() if os.fspath(path) not in directories}
        return {**directories, **{_plain("a path in files", path): one for path, one in initial.checked(rest).items()}}

    def size_limit(self) -> int:
        """`max_bytes` as a number."""
        return parse_memory(self.max_bytes, name="max_bytes")

    def spec(self, solver_id: str) -> CreateSpec:
        """How the grader is made."""
        return CreateSpec(
            image=request.image(self.image, self.checkpoint),
            resources=Resources(
                cpu=self.cpu,
                memory=self.memory,
                pids=self.pids,
                disk=self.disk,
                gpu=self.gpu,
                node_selector=self.node_selector,
                pull=self.pull,
                network=self.network,
                mounts=self.mounts,
            ),
            commands=CommandSettings(env=self.env, cwd=self.cwd, user=self.user),
            lifetime=Lifetime(ttl=self.start_timeout + self.handover_timeout + self.timeout + _TTL_BESIDE_S),
            labels={"grades": solver_id, **(self.labels or {})},
            egress=self.egress,
            start_timeout=self.start_timeout,
        )


def _paths(name: str, given: str | Sequence[str]) -> tuple[str, ...]:
    listed = [given] if isinstance(given, str) else list(given)
    return tuple(dict.fromkeys(_plain(name, one) for one in listed))


def _plain(name: str, path: str) -> str:
    """Check that a path is absolute and plain, and not the root; a slash at its end is dropped."""
    plain = paths.decoded(paths.encoded(name, path)).rstrip("/")
    if not plain.startswith("/") or any(part in ("", ".", "..") for part in plain.split("/")[1:]):
        hint = "Name a directory or a file by its absolute path, like /app; not the root, and without . and .."
        raise InvalidArgument(f"{name} has {path!r}", hint=hint)
    return plain
