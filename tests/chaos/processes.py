"""Processes of a soak: each has a name and a log, can be killed, and another one takes its place."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

UP_WITHIN_S = 120.0


@dataclass
class Processes:
    """Those that were started here, by name."""

    folder: Path
    parts: dict[str, asyncio.subprocess.Process] = field(default_factory=dict, kw_only=True)

    async def start(self, name: str, command: Sequence[str], env: Mapping[str, str]) -> asyncio.subprocess.Process:
        """Start a process, whose words go to the file NAME.log."""
        with (self.folder / f"{name}.log").open("ab") as log:
            making = asyncio.ensure_future(
                asyncio.create_subprocess_exec(
                    *command, env={**os.environ, **env}, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log
                )
            )
            try:
                await asyncio.shield(making)
            finally:
                # Also when this was cancelled: a process that nobody knows nobody ends.
                self.parts[name] = await making
        return self.parts[name]

    async def kill(self, name: str) -> None:
        """Kill a process without a word; its place is empty then."""
        process = self.parts.pop(name)
        if process.returncode is None:
            process.kill()
        await process.wait()

    def fallen(self) -> list[str]:
        """Dependencies that have ended by themselves, with their last words."""
        return [
            f"{name} ended by itself with {process.returncode}: {self._words(name)}"
            for name, process in self.parts.items()
            if process.returncode is not None
        ]

    async def until(self, name: str, up: Callable[[], Awaitable[bool]]) -> None:
        """Wait until a part is up; RuntimeError with its last words when it does not come."""
        until_s = time.monotonic() + UP_WITHIN_S
        while not await up():
            if time.monotonic() > until_s or self.parts[name].returncode is not None:
                raise RuntimeError(f"{name} did not start: {self._words(name)}")
            await asyncio.sleep(0.05)

    def _words(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()[-2000:]
