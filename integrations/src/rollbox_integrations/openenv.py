"""OpenEnv: a container provider, `rollbox_integrations.openenv.RollboxProvider`, for `provider=` of its clients."""

from __future__ import annotations

import shlex
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any, Final, Unpack, cast

import rollbox.sync
from rollbox import SandboxError
from rollbox.options import CreateOptions
from rollbox_integrations import outcome
from rollbox_integrations.versions import require

require("openenv", "0.10.0", "openenv")

from openenv.core.containers.runtime import ContainerProvider  # noqa: E402 - not before its version is known
from openenv.core.containers.runtime._server_config import parse_openenv_app_field  # noqa: E402

_PORT: Final = 8000
_DAY_S: Final = 24 * 3600.0
_START_S: Final = 600.0
# Between two looks at whether the server answers, and for one look.
_LOOK_S: Final = 0.2
_HEALTH_S: Final = 5.0
# Of the end of what the server has written, in an error's sentence; how much the sandbox keeps for that.
_SHOWN_CHARS: Final = 2000
_KEPT_BYTES: Final = 2**16
# Where `openenv build` puts an environment, and where older layouts have it.
_FIND: Final = """
file=/app/env/openenv.yaml
[ -f "$file" ] || file=$(find /app -maxdepth 4 -name openenv.yaml -print -quit 2>/dev/null)
cat "$file" && dirname "$file"
"""


class SandboxUnavailable(RuntimeError):  # noqa: N818 - as the SDK names them
    """There is no sandbox, or none any more: nothing of the environment's doing.

    Attributes:
        fault: whose fault that is, and whether to mask the sample.
    """

    def __init__(self, error: SandboxError) -> None:
        super().__init__(outcome.sentence(error))
        self.fault = outcome.fault(error)


class RollboxProvider(ContainerProvider):
    """The sandbox of an environment's server.

        env = EchoEnv.from_docker_image("echo-env:latest", provider=RollboxProvider()).sync()

    Attributes:
        headers: what requests to the server need; empty where its port is public.
    """

    def __init__(
        self,
        *,
        image: str | None = None,
        env_vars: Mapping[str, str] | None = None,
        cmd: str | None = None,
        public: bool = True,
        **options: Unpack[CreateOptions],
    ) -> None:
        """Take what a sandbox is made of; nothing is sent.

        Args:
            image: of `start_container` calls without one.
            env_vars: the same.
            cmd: the shell command of the server; None: as `app` of the image's openenv.yaml says.
            public: whether the address alone opens the server; else requests need `headers`.
            options: those of `Sandbox.create`.

        Raises:
            TypeError: one is none of them.
        """
        if unknown := sorted(set(options) - CreateOptions.__optional_keys__):
            raise TypeError(f"{', '.join(unknown)} is no option of Sandbox.create")
        self._image = image
        self._env_vars = env_vars
        self._cmd = cmd
        self._public = public
        self._options = options
        self._sandbox: rollbox.sync.Sandbox | None = None
        self._server: rollbox.sync.Process | None = None
        self.headers: Mapping[str, str] = {}

    @property
    def sandbox(self) -> rollbox.sync.Sandbox:
        """The SDK's own, for what OpenEnv has no call for.

        Raises:
            RuntimeError: it was not started, or is stopped.
        """
        if self._sandbox is None:
            raise RuntimeError("the container was not started, or is stopped")
        return self._sandbox

    def start_container(
        self,
        image: str | None = None,
        port: int | None = None,
        env_vars: dict[str, str] | None = None,
        **kwargs: Any,  # noqa: ANN401 - OpenEnv's
    ) -> str:
        """See OpenEnv. The image's own server is started; `cmd` says how, if the image does not.

        Raises:
            SandboxUnavailable: there is no sandbox, and that says nothing about the sample.
            ValueError: an argument is wrong, or nothing says how the server is started.
        """
        if self._sandbox is not None:
            raise RuntimeError(f"sandbox {self._sandbox.id} of this provider runs: stop_container() first")
        cmd = kwargs.pop("cmd", self._cmd)
        if kwargs:
            raise ValueError(f"{', '.join(sorted(kwargs))}: start_container takes image, port, env_vars and cmd")
        try:
            self._sandbox = rollbox.sync.Sandbox.create(image or self._image, **self._asked(env_vars))
            return self._serve(cmd, _PORT if port is None else port)
        except BaseException as error:
            self.stop_container()
            if isinstance(error, SandboxError):
                raise _told(error) from error
            raise

    def _asked(self, env_vars: Mapping[str, str] | None) -> CreateOptions:
        variables: Any = self._options.get("env")
        env = {**(variables or {}), **((self._env_vars if env_vars is None else env_vars) or {})}
        labels = {**(self._options.get("labels") or {}), "rollbox.host": "openenv"}
        lifetime = {"ttl": _DAY_S, "start_timeout": _START_S}
        return cast("CreateOptions", {**lifetime, **self._options, "env": env, "labels": labels})

    def _serve(self, cmd: str | None, port: int) -> str:
        command = cmd or self._found(port)
        self._server = self.sandbox.spawn(
            f"exec 2>&1\n{command}", stdin=False, output_waits=False, max_output_bytes=_KEPT_BYTES
        )
        exposed = self.sandbox.ports.expose(port, public=self._public)
        self.headers = exposed.headers
        return exposed.url.rstrip("/")

    def _found(self, port: int) -> str:
        """Read in the image how its server is started, as OpenEnv's providers of other platforms do."""
        said = self.sandbox.exec(_FIND)
        content, _, root = said.stdout.rstrip("\n").rpartition("\n")
        app = parse_openenv_app_field(content) if said.ok else None
        if app is None:
            raise ValueError("the image has no openenv.yaml with `app` below /app: say cmd=, the server's command")
        return f"cd {shlex.quote(root)} && exec python -m uvicorn {shlex.quote(app)} --host 0.0.0.0 --port {port}"

    def wait_for_ready(self, base_url: str, timeout_s: float = 120.0) -> None:
        """See OpenEnv: returns when /health answers.

        Raises:
            TimeoutError: it did not for `timeout_s` seconds.
            RuntimeError: the server has ended; with the end of its output.
            SandboxUnavailable: there is no sandbox any more.
        """
        deadline = time.monotonic() + timeout_s
        while not self._answers(f"{base_url}/health"):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the server in sandbox {self.sandbox.id} did not answer for {timeout_s:g} s")
            self._look()

    def _answers(self, url: str) -> bool:
        request = urllib.request.Request(url, headers=dict(self.headers))  # noqa: S310 - the gateway's
        try:
            with urllib.request.urlopen(request, timeout=_HEALTH_S) as answer:  # noqa: S310
                return bool(answer.status == 200)
        except (OSError, urllib.error.URLError):
            return False

    def _look(self) -> None:
        """Wait a moment for the server's end."""
        server = self._server
        if server is None:
            raise RuntimeError("the container was not started, or is stopped")
        try:
            ended = server.wait(timeout=_LOOK_S)
        except TimeoutError:
            return
        except SandboxError as error:
            raise _told(error) from error
        said = server.stdout.read().decode("utf-8", "replace")[-_SHOWN_CHARS:]
        raise RuntimeError(f"the server in sandbox {self.sandbox.id} has ended ({ended.end}): {said}")

    def fault(self) -> outcome.Fault | None:
        """Say why the server answers no more, for a client whose connection has broken.

        Returns:
            code, whose fault, and whether to mask the sample; None while the server runs.
        Cost: one request at most.
        """
        if self._server is None:
            return None
        try:
            self._server.wait(timeout=_LOOK_S).check()
        except TimeoutError:
            return None
        except SandboxError as error:
            return outcome.fault(error)
        return None

    def stop_container(self) -> None:
        """See OpenEnv: deletes the sandbox. Its lease ends one that could not be deleted.

        Raises:
            SandboxUnavailable: it could not be deleted; a later call tries again.
        """
        if self._sandbox is None:
            return
        try:
            self._sandbox.delete()
        except SandboxError as error:
            raise SandboxUnavailable(error) from error
        self._sandbox = self._server = None
        self.headers = {}

    def close(self) -> None:
        """See OpenEnv: as `stop_container`."""
        self.stop_container()


def _told(error: SandboxError) -> Exception:
    wrong = error.fault == "caller" and not error.mask_sample
    return ValueError(outcome.sentence(error)) if wrong else SandboxUnavailable(error)
