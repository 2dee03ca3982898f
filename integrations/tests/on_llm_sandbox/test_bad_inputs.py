"""What is bad for any host, by llm-sandbox's sessions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from llm_sandbox.exceptions import ValidationError

from bad_inputs import BadUsers, Box, Told
from on_llm_sandbox.conftest import made
from rollbox_integrations.llm_sandbox import RollboxSession, SandboxUnavailable


class TestBadInputs(BadUsers):
    lost = SandboxUnavailable
    wrong = ValidationError

    @asynccontextmanager
    async def opened(self, **options: Any) -> AsyncIterator[Box]:
        session = made(encoding_errors="replace", **options)
        await asyncio.to_thread(session.open)
        assert session.container is not None

        async def run(line: str) -> Told:
            result = await asyncio.to_thread(session.execute_command, line)
            return Told(result.exit_code, result.stdout + result.stderr)

        try:
            yield Box(session.container.id, run)
        finally:
            await asyncio.to_thread(session.close)


def test_binary_output_is_an_error_as_long_as_llm_sandbox_is_strict(session: RollboxSession) -> None:
    with pytest.raises(UnicodeDecodeError):
        session.execute_command(r"printf 'a\377b'")
    assert session.execute_command("echo on").stdout == "on\n"
