"""verifiers: see `calls`."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from calls import IMAGE, Run, main
from pydantic import TypeAdapter
from verifiers.v1.runtimes import Runtime, RuntimeConfig, provision_runtime

from rollbox_integrations.verifiers import RollboxBackend

PROVIDERS = {
    "rollbox": {"type": "custom", "import_path": "rollbox_integrations.verifiers.RollboxBackend"},
    "docker": {"type": "docker"},
}


def _config(provider: str) -> RuntimeConfig:
    return TypeAdapter(RuntimeConfig).validate_python({**PROVIDERS[provider], "image": IMAGE, "memory": 0.25})


def _run(runtime: Runtime) -> Run:
    return lambda argv: runtime.run(list(argv), {})


class Verifiers:
    """See `calls.Host`."""

    async def begin(self, provider: str) -> None:
        """See `calls.Host.begin`; nothing."""

    @contextlib.asynccontextmanager
    async def opened(self, provider: str) -> AsyncIterator[Run]:
        """See `calls.Host.opened`."""
        async with provision_runtime(_config(provider)) as runtime:
            yield _run(runtime)

    @contextlib.asynccontextmanager
    async def both(self) -> AsyncIterator[tuple[Run, Run]]:
        """See `calls.Host.both`."""
        async with provision_runtime(_config("rollbox")) as runtime:
            assert isinstance(runtime.backend, RollboxBackend)
            sandbox = runtime.backend.sandbox
            yield _run(runtime), lambda argv: sandbox.exec(list(argv))

    def unstarted(self) -> object:
        """See `calls.Host.unstarted`."""
        return provision_runtime(_config("rollbox"))


if __name__ == "__main__":
    main(Verifiers())
