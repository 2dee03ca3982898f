"""Hands over what a solver has made: from its sandbox into the grader's, as one stream, checked on the way.

The bytes pass through this process, which holds some of them at a time and no file: so one place checks them, with no
right in either sandbox but those of the two streams, and neither sandbox learns of the other.
"""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, contextmanager
from copy import copy
from functools import partial
from typing import TypeAlias

from rollbox._problem import SandboxError
from rollbox.errors import FileNotFound, PermissionDenied
from rollbox.files import frames, paths
from rollbox.files.handle import Files
from rollbox.files.info import FileInfo
from rollbox.gateway import Gateway, SandboxAccess
from rollbox.grading.options import Grading
from rollbox.grading.tree import Budget, CheckedTree, Refused, Taken, covers

_Pairs: TypeAlias = list[tuple[str, str | bytes]]
_ROOT = "0"
# Of a directory that root has made for another user, who is to fill it.
_OPEN = 0o777


class FromSolver(Exception):  # noqa: N818 - says where an error is from
    """An error of the solver's sandbox."""

    def __init__(self, error: SandboxError) -> None:
        super().__init__(str(error))
        self.error = error


class Handover:
    """From one sandbox into another.

    Args:
        gateway: of both.
        solver, grader: the sandboxes.
        grading: what is taken.
        taken: is told what was.
    """

    def __init__(
        self, gateway: Gateway, solver: SandboxAccess, grader: SandboxAccess, grading: Grading, taken: Taken
    ) -> None:
        self._gateway, self._solver, self._grader = gateway, solver, grader
        self._from, self._to = Files(gateway, solver), Files(gateway, grader)
        self._user, self._kept, self._rules, self._taken = grading.take_user, grading.excluded(), grading.rules(), taken
        self._owner = grading.user
        self._budget = Budget(grading.size_limit(), grading.max_entries, grading.max_path_bytes)
        self._solver_failed: SandboxError | None = None
        self._begun = ""

    async def take(self) -> None:
        """Take all trees, one after the other; each takes the place of what the grader has there.

        Raises:
            Refused: what is there is not taken; what was taken before stays.
            FromSolver: an error of the solver's sandbox.
            SandboxError: an error of the grader's.
        """
        for tree in self._rules.trees:
            clearing = asyncio.create_task(self._cleared(tree))
            try:
                found = await self._found(tree)
            finally:
                await clearing
            if found is None:
                self._taken.missing.append(tree)
                continue
            try:
                await self._gateway.repeated(partial(self._once, tree, found))
            except SandboxError as error:
                if error is self._solver_failed:
                    raise FromSolver(error) from error
                raise

    async def _found(self, tree: str) -> FileInfo | None:
        try:
            found = await self._from.stat(tree, follow=False, user=self._user)
        except FileNotFound:
            return None
        except SandboxError as error:
            raise FromSolver(error) from error
        if found.kind not in ("file", "directory"):
            what = {"symlink": "a symbolic link"}.get(found.kind, "neither a file nor a directory")
            raise Refused("not_a_tree", f"{paths.shown(tree)} is {what}")
        return found

    async def _once(self, tree: str, found: FileInfo) -> None:
        """Take one tree, all of it or nothing of it counted: an attempt that fails may be repeated."""
        budget, report = copy(self._budget), copy(self._taken.report)
        report.skipped = dict(report.skipped)
        if self._begun == tree:
            await self._cleared(tree)
        self._begun = tree
        if found.kind == "directory":
            await self._made(tree, found.mode & 0o777 | 0o700)
            root, only = tree, None
        else:
            root, only = posixpath.split(tree)
            if self._owner is not None:
                # Its directory may be one that this user may not write to.
                await self._to.write(tree, b"", mode=found.mode & 0o777, owner=self._owner, user=_ROOT)
        checked = CheckedTree(root, self._rules, budget, report, only)
        for name in await self._passed_on(tree, root, checked):
            report.skip(f"{root}/{name}", "left out by the grader's sandbox")
        self._budget, self._taken.report = budget, report

    async def _passed_on(self, tree: str, root: str, checked: CheckedTree) -> list[str]:
        """Pass one archive on; returns what the grader's sandbox has left out."""
        query: _Pairs = [("path", paths.encoded("path", tree))]
        query += [] if self._user is None else [("user", self._user)]
        to: _Pairs = [("path", paths.encoded("path", root or "/")), ("parents", "true")]
        async with AsyncExitStack() as stack:
            with self._of_solver():
                asked = self._gateway.exchange(self._solver, "GET", "archive", query=query, headers=frames.ACCEPT)
                parts = frames.Checked(await stack.enter_async_context(asked)).chunks()

            async def source() -> AsyncIterator[bytes]:
                with self._of_solver():
                    async for part in parts:
                        if out := checked.feed(part):
                            yield out
                    # Not before the digest of all that came was compared: without its end nothing passes for whole.
                    yield checked.finish()

            body = await stack.enter_async_context(
                self._gateway.exchange(self._grader, "PUT", "archive", query=to, source=source)
            )
            return list((await body.json())["skipped"])

    @contextmanager
    def _of_solver(self) -> Iterator[None]:
        try:
            yield
        except SandboxError as error:
            self._solver_failed = error
            raise

    async def _made(self, tree: str, mode: int) -> None:
        try:
            await self._to.mkdir(tree, mode=mode)
        except PermissionDenied:
            await self._to.mkdir(tree, mode=_OPEN, user=_ROOT)

    async def _cleared(self, tree: str) -> None:
        """Remove what the grader has at a path, but for what stays."""
        if tree in self._kept:
            return
        if not any(covers(tree, one) for one in self._kept):
            await self._to.remove(tree, recursive=True, missing_ok=True, user=_ROOT)
            return
        try:
            below = await self._to.list(tree, limit=100_000, user=_ROOT)
        except FileNotFound:
            return
        for entry in below:
            await self._cleared(entry.path)
