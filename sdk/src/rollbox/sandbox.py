"""A sandbox: create it, run commands in it, delete it."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Literal, NoReturn, Unpack, overload
from uuid import uuid4

from rollbox import request, shared
from rollbox._problem import SandboxError
from rollbox.api_key import Duration, SharedKey, duration_ms
from rollbox.dataset import Mounts
from rollbox.deadline import Deadline
from rollbox.egress import Egress, EgressAttempt, EgressLog, EgressState, wish_to_json
from rollbox.errors import Deleted, InvalidArgument, SandboxForgotten, SandboxNotFound
from rollbox.files import Files, initial
from rollbox.gateway import Gateway, Opened
from rollbox.image import Checkpoint, CommittedImage
from rollbox.interpreter import Interpreter
from rollbox.interpreter.options import DEFAULT_OUTPUT_BYTES as INTERPRETER_OUTPUT_BYTES
from rollbox.interpreter.program import chosen
from rollbox.options import CommandSettings, CommitOptions, CreateSpec, Lifetime, Pull, Resources
from rollbox.ports import Ports
from rollbox.process import Process, Processes
from rollbox.process.connection import Connection
from rollbox.process.streamed_stdin import run_with_streamed_stdin
from rollbox.quantity import DEFAULT_CPU, DEFAULT_MEMORY, Cpu, Memory, Size, parse_memory
from rollbox.record import SandboxList, SandboxRecord
from rollbox.recording import current
from rollbox.request import Command, Directory, InitialFiles, Keep, ShellOptions, Variables
from rollbox.result import ExecResult
from rollbox.shared import GatewayOwner, SameGateway
from rollbox.shell import DEFAULT_OUTPUT_BYTES, Shell
from rollbox.terminal_shell import DEFAULT_SIZE, TerminalShell
from rollbox.usage import Usage

if TYPE_CHECKING:
    from rollbox.git_scrub import ScrubReport
    from rollbox.grading import GradeOptions, Verdict


class Sandbox:
    """A sandbox that is ready to run commands.

    Made by `await Sandbox.create(...)` or `await Sandbox.connect(id)`. As an asynchronous context manager it deletes
    the sandbox at the end, unless `detach()` was called. Calls may run concurrently, on one event loop.
    """

    def __init__(self, gateway: Gateway, opened: Opened, *, leased: bool) -> None:
        """Use `create` or `connect` instead."""
        self._gateway = gateway
        self._record, self._access = opened
        self._leased = leased
        self._detached = False
        self._deleted = False
        self._on_draining: Callable[[float], object] | None = None
        self._answers_tell = False  # whether what is known of a drain came with an answer to a command
        self._access.on_draining = self._hear_answer

    @classmethod
    async def create(
        cls,
        image: str | None = None,
        *,
        checkpoint: str | None = None,
        cpu: Cpu = DEFAULT_CPU,
        memory: Memory = DEFAULT_MEMORY,
        pids: int | None = None,
        disk: Size | None = None,
        gpu: int = 0,
        node_selector: Mapping[str, str] | None = None,
        pull: Pull = "auto",
        network: str | None = None,
        mounts: Mounts | None = None,
        env: Variables | None = None,
        files: InitialFiles | None = None,
        cwd: Directory | None = None,
        user: str | None = None,
        labels: Mapping[str, str] | None = None,
        ttl: float = 3600,
        idle_timeout: float | None = None,
        lease: float | None = 600,
        egress: Egress | None = None,
        start_timeout: float = 120,
        idempotency_key: str | None = None,
        client: GatewayOwner | None = None,
    ) -> Sandbox:
        """Create a sandbox and return it when a command can run in it.

        Args:
            image: name of any container image; its own variables, directory and user apply unless given here.
            checkpoint: in place of an image: what `commit(checkpoint=True)` has returned, or its id.
            cpu: cores, a limit or (request, limit): 2, (0.1, 2), "500m". Of a limit alone the installation requests a
                share (`sandboxes.overcommit` of the chart), so that more sandboxes share a node.
            memory: bytes or a size, a limit or (request, limit): "2Gi", ("256Mi", "2Gi"), 2**30; the same.
            pids: most processes and threads at a time; None is the installation's default: 512. Under gVisor it counts
                for each user of the sandbox; Kubernetes without gVisor has no such limit and refuses the option.
            disk: bytes or a size that it may fill of the node's disk; None is the installation's default.
            gpu: how many devices it gets, where the installation has some for sandboxes; else refused (`Unsupported`,
                docs/gpu.md).
            node_selector: labels that its node must have.
            pull: how its node gets the image where it does not have it. "lazy": the sandbox starts at once and its
                files are fetched when they are read, the rest behind; "full": it starts when all of the image is there;
                "auto": lazy where the image and the nodes allow it. Lazy pulling that is not to be had is refused.
            network: a direct network of the installation, for what speaks no proxy (UDP, TCP of its own); None: only
                what `egress` allows is reached, through the proxy. Operators say which there are (egress.direct of the
                chart); one that the cluster cannot enforce is refused.
            mounts: what it has besides its image, by absolute path: `Dataset("imagenet-mini")`, files of the
                installation that are read only, or `Scratch("cache")`, a folder that its group shares and that goes
                with the last of them. At most 16, none in another one. Only a pool whose template has the same mounts
                serves it.
            env: variables for every command in it, over those of the image. The place for secrets: a gateway gives
                them to the sandbox, and no other part of the platform has the values: no store, pod, label or log.
            files: initial files by absolute path: bytes, text, or a `Path` to a local file, whose mode is kept; at most
                1000. Written as `user`; missing directories are made. If one cannot be written, the sandbox is deleted
                and the error raised; with an `idempotency_key` of yours, the sandbox is kept after a cancellation or a
                retryable error. The key does not cover them: a repeated create writes them again.
            cwd: the directory of every command; it may be one that `files` make.
            user: the name or number that every command runs as.
            labels: names and values to list and delete it by.
            ttl: seconds after which the server deletes it; `extend` moves that.
            idle_timeout: seconds without use after which the server deletes it: no command runs, no client is attached,
                no file call, no connection to a port. None is the installation's default.
            lease: seconds that it outlives this client. A separate process renews the lease as long as this program
                lives, also while the event loop is blocked. When the lease expires, the client's sandboxes end, except
                those that are still in use. None, or `detach`: it outlives the client.
            egress: what it may reach: "packages" or another preset, or an `EgressPolicy`; None is the installation's
                default, usually "offline". The call returns when it is in force; `Sandbox.egress` switches it.
            start_timeout: seconds that the whole call may take: waits for quota, capacity and a start slot, retries and
                `files`.
            idempotency_key: the same key with the same arguments gives the same sandbox; random when None.
            client: the client to use; None is the shared one of this event loop.

        Raises:
            InvalidArgument: an argument is invalid; raised before any request where possible.
            CheckpointNotFound, CheckpointExpired: `checkpoint` is none of yours, or its time is over.
            ImageNotFound, QuotaExceeded, CapacityUnavailable, StartTimeout, ...: see `rollbox.errors`.
        Cancel safety: a cancelled create deletes the sandbox that it may have created, but not one that another create
            with the same key has (for `files` see there). If the program dies instead, the sandbox ends within a
            minute, unless its key is used again.
        Cost: one request, open until the sandbox is ready, and one for each of `files`; no polling.
        """
        resources = Resources(
            cpu=cpu,
            memory=memory,
            pids=pids,
            disk=disk,
            gpu=gpu,
            node_selector=node_selector,
            pull=pull,
            network=network,
            mounts=mounts,
        )
        spec = CreateSpec(
            image=request.image(image, checkpoint),
            resources=resources,
            commands=CommandSettings(env=env, cwd=cwd, user=user),
            lifetime=Lifetime(ttl=ttl, idle_timeout=idle_timeout, lease=lease),
            labels=labels,
            files=files,
            egress=egress,
            start_timeout=start_timeout,
            idempotency_key=idempotency_key,
        )
        return await cls._made(spec, client, Deadline(start_timeout))

    @classmethod
    async def _made(cls, spec: CreateSpec, client: GatewayOwner | None, deadline: Deadline) -> Sandbox:
        contents, body, own_key = initial.checked(spec.files), spec.to_json(), spec.idempotency_key is not None
        key = spec.idempotency_key or uuid4().hex
        made = await cls._open(client, lambda gateway: gateway.create(body, key, forget=not own_key, deadline=deadline))
        if contents:
            await made._write_initial_files(initial.InitialFilesWriter(contents, deadline, own_key=own_key))  # noqa: SLF001 - its own
        return made

    @classmethod
    async def connect(cls, sandbox_id: str, *, attach: bool = False, client: GatewayOwner | None = None) -> Sandbox:
        """Connect to a sandbox by its id, with the API key of its owner; SandboxNotFound when there is none.

        Args:
            sandbox_id: its id.
            attach: put it on this client's lease, instead of that of the client that created it, as after a restart.
            client: as for `create`.
        """
        return await cls._open(client, lambda gateway: gateway.connect(sandbox_id, attach=attach))

    @staticmethod
    async def list(
        labels: Mapping[str, str] | None = None,
        *,
        all: bool = False,  # noqa: A002
        client: GatewayOwner | None = None,
    ) -> SandboxList:
        """List the owner's sandboxes that have all these labels; with `all`, ended ones too."""
        gateway = await shared.gateway_of(client)
        try:
            return await gateway.list(labels, ended=all)
        finally:
            if client is None:
                await shared.release(gateway)

    @classmethod
    async def _open(cls, client: GatewayOwner | None, call: Callable[[Gateway], Awaitable[Opened]]) -> Sandbox:
        gateway = await shared.gateway_of(client)
        try:
            opened = await call(gateway)
        except BaseException:
            if client is None:
                await shared.release(gateway)
            raise
        return cls(gateway, opened, leased=client is None)

    async def exec(
        self,
        cmd: Command,
        *,
        cwd: Directory | None = None,
        env: Variables | None = None,
        user: str | None = None,
        stdin: request.Stdin = b"",
        timeout: float | None = None,  # noqa: ASYNC109
        max_output_bytes: int | None = None,
        max_stderr_bytes: int | None = None,
        keep: Keep = "tail",
        merge: bool = False,
        umask: int | None = None,
        check: bool = False,
        exec_id: str | None = None,
    ) -> ExecResult:
        """Run a command to its end and return its result; a non-zero exit code is a result, not an error.

        Args:
            cmd: a string for the shell (bash, or sh where there is none), or the arguments themselves.
            cwd: its directory, over that of the sandbox; a relative one is in that one.
            env: its variables, over those of the sandbox.
            user: the name or number that it runs as, over that of the sandbox.
            stdin: its input, then end of file: bytes, text, an open binary file or an asynchronous iterator of bytes,
                of any size. More than a MiB, or input of unknown size, is streamed while the command runs, at most a
                MiB ahead of it; the rest of an input that it does not read is not taken from the source.
            timeout: seconds after which the server kills it with all its processes; None: only the sandbox's ttl.
            max_output_bytes: how much of stdout and of stderr to keep, each.
            max_stderr_bytes: how much of stderr, over `max_output_bytes`.
            keep: which part of a longer output: "tail" or "head".
            merge: stderr is the pipe of stdout: all output is `stdout`, in the order in which it was written.
            umask: its mask for new files, like 0o022; None: that of the image's own process.
            check: raise unless it exits with 0.
            exec_id: the same id with the same arguments never runs twice, it gives the same result; random when None.
                Streamed input is not compared.

        Returns:
            the result; `end` says whether it exited or was ended.

        Raises:
            ExecFailed, ExecDeadline, OomKilled, ExecCancelled: with `check`; they carry `.result`.
            InvalidArgument: an argument is invalid; `details["reason"]` is command_not_found, not_executable,
                cwd_not_found or user_not_found for errors that only the sandbox can detect, and arguments_too_large
                above its kernel's limits: on Linux 128 KiB for one string and a quarter of the stack's limit (usually
                2 MiB) for arguments and variables together, under gVisor 2 MiB for each of the two.
            SandboxLost, TtlExpired, Deleted, ...: the sandbox has ended; `mask_sample` says whether to leave the sample
                out.
        Cancel safety: a cancelled exec (asyncio.timeout, a task group that aborts) kills the command on the server.
        Cost: one request; 0.1 to 0.2 ms of the client's cpu (aiohttp 3.14, small outputs). Two and a WebSocket for
            streamed input.
        """
        self._refuse_deleted()
        made_id = uuid4().hex if exec_id is None else request.key("exec_id", exec_id)
        body = request.exec_body(
            cmd,
            made_id,
            cwd=cwd,
            env=env,
            user=user,
            stdin=stdin,
            timeout=timeout,
            max_output_bytes=max_output_bytes,
            max_stderr_bytes=max_stderr_bytes,
            keep=keep,
            merge=merge,
            umask=umask,
        )
        with _hint_when_not_found(cmd):
            if body.get("stdin_open"):
                answer = await run_with_streamed_stdin(self._gateway, self._access, body, stdin)
            else:
                answer = await self._gateway.exec(self._access, body)
        result = ExecResult.from_json(answer, self.id)
        return result.check() if check else result

    async def spawn(
        self,
        cmd: Command,
        *,
        cwd: Directory | None = None,
        env: Variables | None = None,
        user: str | None = None,
        umask: int | None = None,
        stdin: bool | bytes | str = True,
        terminal: tuple[int, int] | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
        max_output_bytes: int | None = None,
        max_stderr_bytes: int | None = None,
        output_waits: bool = True,
        orphan_grace: float | None = None,
        exec_id: str | None = None,
    ) -> Process:
        """Start a command and return its process as soon as it runs, for its input, its output and its end.

        Args:
            cmd: as for `exec`, like everything that is not described here.
            cwd: its directory.
            env: its variables.
            user: the user that it runs as.
            umask: its mask for new files.
            stdin: keep its input open for `process.stdin`, after these bytes or this text (at most 1 MiB); False: it
                reads end of file.
            terminal: run it on a terminal of so many columns and rows; all its output is stdout then.
            timeout: seconds until it is killed.
            max_output_bytes: how much of the last output the sandbox keeps for a later attach; at least 4 MiB with
                `output_waits`.
            max_stderr_bytes: how much of stderr, over `max_output_bytes`.
            output_waits: block the command while its output is not read, as on a full pipe (for 10 s where there is no
                reader); else output that does not fit is dropped at once, which suits servers in the background.
            orphan_grace: seconds without any attached client after which it is killed with all that it has started, and
                ends as cancelled; None: it outlives its clients, until its sandbox ends. A client that is silent for
                15 s, as one whose event loop is blocked, is not attached until it comes back: allow for that.
            exec_id: the same id with the same arguments never runs twice.

        Raises: as `exec`.
        Cancel safety: a cancelled spawn kills the command on the server.
        Cost: one request; a WebSocket from the first read, write or wait on.
        """
        self._refuse_deleted()
        made_id = uuid4().hex if exec_id is None else request.key("exec_id", exec_id)
        body = request.spawn_body(
            cmd,
            made_id,
            cwd=cwd,
            env=env,
            user=user,
            umask=umask,
            stdin=stdin,
            terminal=terminal,
            timeout=timeout,
            max_output_bytes=max_output_bytes,
            max_stderr_bytes=max_stderr_bytes,
            output_waits=output_waits,
            orphan_grace=orphan_grace,
        )
        with _hint_when_not_found(cmd):
            started = await self._gateway.spawn(self._access, body)
        began = stdin if isinstance(stdin, bytes) else stdin.encode() if isinstance(stdin, str) else b""
        connection = Connection(self._gateway, self._access, made_id, (0, 0), stdin_offset=len(began))
        if (run := current.current()) is not None:
            connection.on_end = run.process(self.id)
        return Process(self._gateway, self._access, connection, started["pid"])

    @overload
    async def shell(self, *, terminal: Literal[False] = False, **options: Unpack[ShellOptions]) -> Shell: ...

    @overload
    async def shell(
        self, *, terminal: Literal[True] | tuple[int, int], **options: Unpack[ShellOptions]
    ) -> TerminalShell: ...

    async def shell(
        self,
        *,
        terminal: bool | tuple[int, int] = False,
        cwd: Directory | None = None,
        env: Variables | None = None,
        user: str | None = None,
        max_output_bytes: int = DEFAULT_OUTPUT_BYTES,
    ) -> Shell | TerminalShell:
        """Start a shell that keeps directory, variables and functions from one command to the next.

        Args:
            terminal: run it on a terminal, of 120 columns and 40 rows or of so many, for programs that people use; all
                its output is stdout then. See `TerminalShell`.
            cwd: where it starts.
            env: its variables.
            user: the user that it runs as.
            max_output_bytes: how much of each command's stdout and stderr to keep, each; the last bytes are kept.

        Raises: as `exec`; InvalidArgument when the image has neither bash nor sh.
        Cost: one process in the sandbox, bash where there is one.
        """
        if terminal is not False:
            size = DEFAULT_SIZE if terminal is True else terminal
            return await TerminalShell.start(
                self,
                self._gateway.run_cleanup,
                cwd=cwd,
                env=env,
                user=user,
                size=size,
                max_output_bytes=max_output_bytes,
            )
        return await Shell.start(
            self, self._gateway.run_cleanup, cwd=cwd, env=env, user=user, max_output_bytes=max_output_bytes
        )

    async def interpreter(
        self,
        language: Literal["python", "node"] = "python",
        *,
        kernel: Literal["jupyter"] | None = None,
        cwd: Directory | None = None,
        env: Variables | None = None,
        user: str | None = None,
        max_output_bytes: int = INTERPRETER_OUTPUT_BYTES,
    ) -> Interpreter:
        """Start an interpreter that keeps its variables from one cell to the next; several are independent.

        Args:
            language: "python": the `python3` of the image (3.8 or newer), which needs nothing else.
                "node": JavaScript in the `node` of the image (18 or newer), as in its own prompt.
            kernel: "jupyter": the `ipykernel` of that Python runs the cells, with its `%` magics and `!` commands.
            cwd: where it starts.
            env: its variables.
            user: the user that it runs as.
            max_output_bytes: how much of each cell's stdout and stderr to keep, each; the first bytes are kept.

        Raises:
            InvalidArgument: the image has no python3 or node that can run it, no ipykernel, or an argument is invalid.
            SandboxLost, TtlExpired, Deleted, ...: as `exec`.
        Cost: one process in the sandbox, and a connection to it.
        """
        program = chosen(language, kernel)
        return await Interpreter.start(self, program, cwd=cwd, env=env, user=user, max_output_bytes=max_output_bytes)

    @property
    def processes(self) -> Processes:
        """Its commands, running and ended: list them, attach to one."""
        return Processes(self._gateway, self._access)

    @property
    def files(self) -> Files:
        """Its files."""
        return Files(self._gateway, self._access)

    @property
    def ports(self) -> Ports:
        """Its ports."""
        return Ports(self._gateway, self._access)

    async def egress(self, policy: Egress | None = None, *, timeout: float = 10) -> EgressState:  # noqa: ASYNC109
        """Switch what the sandbox may reach, and return once that is in force; without a policy, only tell it.

            await sandbox.egress("packages")   # set-up
            await sandbox.exec("pip install -r requirements.txt")
            await sandbox.egress("offline")    # rollout

        Open connections that the new policy does not allow are closed by then. Programs that run already find the
        network by the proxy that every command's environment names, whatever the policy was when they started.

        Args:
            policy: a preset ("offline", "packages", "swe-eval", your own), or an `EgressPolicy`.
            timeout: seconds that the switch may take.

        Raises:
            EgressUnavailable: the switch is on record, but nobody has confirmed within `timeout` that it is in force.
            InvalidArgument: the policy contradicts itself, or includes what there is not; the detail says what.
            NotFound: there is no such preset.
            Unsupported: egress is not installed.
        Cost: one request; a switch takes some milliseconds.
        """
        self._refuse_deleted()
        if policy is None:
            told = await self._gateway.call_api("GET", "sandboxes", self.id, "egress", sandbox_id=self.id)
            return EgressState.from_json(told)
        wait_ms = request.milliseconds("timeout", timeout)
        body, deadline = {"policy": wish_to_json(policy), "wait_ms": wait_ms}, Deadline(wait_ms / 1000)
        answer = await self._gateway.call_api(
            "PUT", "sandboxes", self.id, "egress", body=body, deadline=deadline, sandbox_id=self.id
        )
        state = EgressState.from_json(answer)
        self._record = replace(self._record, egress=state.policy)
        return state

    async def egress_log(self) -> EgressLog:
        """Return what programs in the sandbox tried to reach, oldest first: the newest 500 attempts, allowed or not.

        Also after its end. What it refused by itself, offline since its birth, is among them while it runs. Cost: one
        request.
        """
        told = await self._gateway.call_api("GET", "sandboxes", self.id, "egress", "log", sandbox_id=self.id)
        return [EgressAttempt.from_json(one) for one in told["attempts"]]

    async def usage(self) -> Usage:
        """Return what it uses: cpu time, memory, disk, processes. Cost: one request."""
        self._refuse_deleted()
        return Usage.from_json(await self._gateway.call_sandbox(self._access, "GET", "usage"))

    @overload
    async def commit(self, name: str, **options: Unpack[CommitOptions]) -> CommittedImage: ...

    @overload
    async def commit(
        self, *, checkpoint: Literal[True], ttl: float | None = None, **options: Unpack[CommitOptions]
    ) -> Checkpoint: ...

    async def commit(
        self,
        name: str | None = None,
        *,
        checkpoint: bool = False,
        ttl: float | None = None,
        max_bytes: Size | None = None,
        scrub_git: Mapping[str, str] | None = None,
        timeout: float = 120,  # noqa: ASYNC109
        idempotency_key: str | None = None,
    ) -> CommittedImage:
        """Make an image of the sandbox: of its files, on top of its own image. Its processes stand still meanwhile.

            image = await sandbox.commit("repo-at-abc123")
            async with await SandboxGroup.create(image, n=16) as group: ...

            here = await sandbox.commit(checkpoint=True)
            branches = [await Sandbox.create(checkpoint=here) for _ in range(4)]

        Variables, directory and user that the sandbox was created with are not part of the image, and neither are
        running processes. It belongs to the key's owner: no other one can start it.

        Args:
            name: NAME[:TAG]; an image of yours that has this name loses it.
            checkpoint: in place of a name: the image has an id, and ends by itself. It has one layer of all changes
                since the image that is no checkpoint, so that any number may follow one another.
            ttl: seconds for which sandboxes may be started from a checkpoint, at most 7 days; None is 24 hours. A start
                does not prolong it; it goes when its last sandbox has ended.
            max_bytes: the most that what was changed may take; None is the platform's default, 4 GiB.
            scrub_git: repositories to scrub before, by their path, each with its commit: see `scrub_git`.
            timeout: seconds that it may take, with retries and `scrub_git`.
            idempotency_key: the same key with the same arguments gives the same image, for ten minutes; random when
                None.

        Returns:
            its name with its digest, which a later commit to the same name does not change; for `Sandbox.create`.

        Raises:
            InvalidArgument: the name is malformed, or there is neither or both of name and checkpoint.
            PayloadTooLarge: it is over `max_bytes`, or more than can be read while the sandbox stands still (45 s).
            Conflict: it is being committed already.
            Unsupported: this installation makes no images; the detail names the setting that offers it.
            UpstreamTimeout: `timeout` has passed.
        Cancel safety: after a cancelled commit the image may be there, whole, or not.
        """
        self._refuse_deleted()
        milliseconds = request.milliseconds("timeout", timeout)
        body = request.commit_body(name, checkpoint=checkpoint, ttl=ttl)
        if max_bytes is not None:
            body["max_bytes"] = parse_memory(max_bytes, "max_bytes")
        key = None if idempotency_key is None else request.key("idempotency_key", idempotency_key)
        deadline = Deadline(milliseconds / 1000)
        for path, at in (scrub_git or {}).items():
            await self.scrub_git(path, at=at, timeout=max(0.001, deadline.left_s()))
        what, kind = ("checkpoint", Checkpoint) if checkpoint else ("commit", CommittedImage)
        return kind.from_json(await self._gateway.commit(self.id, what, body, key, deadline))

    async def scrub_git(
        self,
        path: str,
        *,
        at: str = "HEAD",
        user: str | None = None,
        remove_alternates: bool = False,
        timeout: float = 300,  # noqa: ASYNC109
    ) -> ScrubReport:
        """Remove from a Git repository, for good, all that is not reachable from one commit; for benchmarks of fixes.

        What goes: later commits with their objects and packs, branches, reflogs, stashes, notes, replacements, grafts,
        remotes, hooks, worktrees, and the configuration but for how files are compared. What stays: the commit with its
        ancestors, the branch, tags of these (as plain references), the working tree as it is, and submodules, which are
        scrubbed too. It is proven by listing every object that is left. Nothing that a hostile repository says is run.

        Args:
            path: of its working tree; absolute.
            at: the commit, which has to be the one that is checked out.
            user: who does it; None: the owner of the repository.
            remove_alternates: also remove folders of objects elsewhere that it borrows from; else they are refused.
            timeout: seconds that it may take.

        Raises:
            FileNotFound: there is no repository.
            InvalidArgument: there is no such commit, or the image has no Git.
            Conflict: another commit is checked out, objects are borrowed, or Git refuses; nothing was changed.
            Unsupported: it is a linked working tree, or a link leads out of it.
        Cost: some thirty calls; time and memory in the sandbox as of `git gc`.
        """
        from rollbox.git_scrub import GitScrub  # noqa: PLC0415 - rarely used

        self._refuse_deleted()
        within_s = request.milliseconds("timeout", timeout) / 1000
        scrub = GitScrub(self, timeout=within_s, user=user, remove_alternates=remove_alternates)
        return await scrub.scrub(request.text("path", path), request.text("at", at))

    async def grade(self, image: str | None = None, **options: Unpack[GradeOptions]) -> Verdict:
        """Run tests over what this sandbox has made, in a fresh one that its code cannot touch.

            verdict = await sandbox.grade(
                "tests:1", take=["/app"], run="pytest -q /tests", files={"/tests": Path("tests")}
            )
            if not verdict.mask_sample:
                reward = verdict.reward

        All processes of this sandbox are killed first, and it runs nothing more unless you start it. Then the files at
        `take` are handed over, checked as those of an attacker, and take the place of what the grader has there. The
        grader is deleted in any case.

        Args:
            image: of the grader: any, an image or a checkpoint that was committed.
            options: `run` and `take`, and those that `Grading` (`rollbox.grading.options`) describes.

        Returns:
            what the tests found, or whose fault it is that they found nothing.

        Raises:
            InvalidArgument, ImageNotFound, QuotaExceeded, Unsupported, ...: a mistake of the program, which would be
                the same for every sample.
            Deleted: this sandbox was deleted by this program.
        Cancel safety: the grader is deleted; the processes here may be dead already.
        Cost: a create, the data twice through this process, and about eight small requests.
        """
        from rollbox.grading.grader import Grader  # noqa: PLC0415 - rarely used
        from rollbox.grading.options import Grading  # noqa: PLC0415 - rarely used

        self._refuse_deleted()
        grading, same = Grading(image=image, **options), SameGateway(self._gateway)

        async def create(spec: CreateSpec) -> Sandbox:
            return await Sandbox._made(spec, same, Deadline(spec.start_timeout))

        return await Grader(self._gateway, self._access, grading, create, self._delete_once).verdict()

    async def extend(self, ttl: float) -> SandboxRecord:
        """Let the sandbox live for at least `ttl` seconds from now; returns its record with the new `expires_at_ms`."""
        self._refuse_deleted()
        self._record = await self._gateway.extend(self._access, request.milliseconds("ttl", ttl))
        return self._record

    async def share(self, ttl: Duration = "10m") -> SharedKey:
        """Make a key that opens this sandbox alone, to hand to somebody: `Client(url, key).connect(sandbox_id)`.

        It is good for commands, files and ports. It does not end, extend or commit the sandbox, or switch its network,
        and opens nothing else of its owner.

        Args:
            ttl: how long it is good for, seconds or a text like "10m", at most a week. It ends before that with the
                sandbox, and with this client's key if that is one on record (`Client.create_key`).

        Raises:
            PermissionDenied: this client's key lacks the scope "run", or is a shared one.
        """
        self._refuse_deleted()
        body = {"ttl_ms": duration_ms("ttl", ttl)}
        return SharedKey.from_json(
            await self._gateway.call_api("POST", "sandboxes", self.id, "share", body=body, sandbox_id=self.id)
        )

    async def _write_initial_files(self, files: initial.InitialFilesWriter) -> None:
        """Write the initial files; on a failure delete the sandbox, unless a repeated create may return it."""
        try:
            await files.write(self.files)
        except BaseException as failure:
            if not files.keeps_sandbox_after(failure):
                await self._gateway.run_cleanup(self._delete_once())
            await self._release()
            raise

    async def _attach(self) -> None:
        # The new record has the lease, so that `detach` knows that there is one to remove.
        self._record, _ = await self._gateway.connect(self.id, attach=True)

    async def detach(self) -> str:
        """Leave the sandbox running when the `async with` ends, and after this client; returns its id.

        Its ttl and its idle timeout still apply. Cost: one request if it has a lease.
        """
        self._refuse_deleted()
        if self._record.lease is not None:
            self._record = await self._gateway.detach(self.id)
        self._detached = True
        return self.id

    async def delete(self, *, wait: bool = False, wait_timeout: float | None = None) -> None:
        """Delete the sandbox with all that runs in it. Idempotent, allowed at any time; an ended sandbox is a success.

        When this returns, its end is on record, its quota is free, and no call reaches it any more; its node kills its
        processes afterwards, usually within a second or two.

        Args:
            wait: return only when the cluster has confirmed that nothing of it runs any more.
            wait_timeout: seconds to wait for that at most; 60 when None.

        Raises:
            UpstreamTimeout: with `wait`, not confirmed in time; it has ended all the same, and a retry is safe.
        Cost: one request, a few milliseconds.
        """
        await self._delete_once(request.wait_s(wait, wait_timeout))
        await self._release()

    async def _delete_once(self, wait_s: float = 0.0) -> None:
        if not self._deleted or wait_s:
            with contextlib.suppress(SandboxNotFound, SandboxForgotten):
                self._record = await self._gateway.delete(self.id, wait_s=wait_s)
            self._deleted = True

    def __getstate__(self) -> NoReturn:
        """Refuse to be pickled: its connections belong to this process."""
        raise TypeError(f"a sandbox cannot be pickled: pass {self.id!r}, and call Sandbox.connect with it there")

    async def __aenter__(self) -> Sandbox:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if not self._detached:
                await self.delete()
        except SandboxError as cleanup:
            # The error of the block is the one to raise; the failed cleanup becomes a note on it.
            if error is None:
                raise
            error.add_note(f"Sandbox {self.id} could not be deleted either: {cleanup}")
        finally:
            await self._release()

    async def _release(self) -> None:
        if self._leased:
            self._leased = False
            await shared.release(self._gateway)

    def _refuse_deleted(self) -> None:
        if self._deleted:
            raise Deleted(f"sandbox {self.id} was deleted by this program", sandbox_id=self.id)

    @property
    def id(self) -> str:
        """Its id, never reused."""
        return self._record.id

    @property
    def draining_at(self) -> float | None:
        """When it ends at the latest, in seconds since 1970 as `time.time()` has them, since its node is drained.

        None: as far as this client has heard, its node is not. It hears with the answer to every `exec` and `spawn`;
        `refresh` asks now. After this moment calls raise `SandboxEvicted`: a fault of the platform, with `retry`
        new_sandbox.
        """
        at_ms = self._record.draining_at_ms
        return None if at_ms is None else at_ms / 1000

    def on_draining(self, call: Callable[[float], object] | None) -> None:
        """Have a function called when this client hears that the node is drained, and of each other deadline.

        Args:
            call: gets `draining_at`; called on the event loop before the `exec`, `spawn` or `refresh` returns that has
                brought it. It must not block; what it raises is raised there. None: nothing is called any more.
        """
        self._on_draining = call

    def _hear_answer(self, at_ms: int | None) -> None:
        # What one gateway does not tell another one may have told: only what an answer has told is taken back.
        if at_ms is not None or self._answers_tell:
            self._answers_tell = at_ms is not None
            self._hear_draining(at_ms)

    def _hear_draining(self, at_ms: int | None) -> None:
        if at_ms == self._record.draining_at_ms:
            return
        self._record = replace(self._record, draining_at_ms=at_ms)
        if at_ms is not None and self._on_draining is not None:
            self._on_draining(at_ms / 1000)

    async def refresh(self) -> SandboxRecord:
        """Get its record anew, ended or not. Cost: one request."""
        record = await self._gateway.get(self.id)
        self._hear_draining(record.draining_at_ms)
        self._record = record
        return record

    @property
    def labels(self) -> Mapping[str, str]:
        """Its labels."""
        return self._record.labels

    @property
    def record(self) -> SandboxRecord:
        """Its record after the last call here that changed it: times, limits, isolation, phases of the start."""
        return self._record

    def __repr__(self) -> str:
        return f"Sandbox(id={self.id!r}, image={self._record.image!r}, state={self._record.state!r})"


@contextlib.contextmanager
def _hint_when_not_found(cmd: Command) -> Iterator[None]:
    try:
        yield
    except InvalidArgument as error:
        if error.details.get("reason") == "command_not_found":
            error.hint = request.hint_when_not_found(cmd) or error.hint
        raise
