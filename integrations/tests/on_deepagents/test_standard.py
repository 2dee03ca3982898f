"""LangChain's own tests of backends."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from deepagents.backends.protocol import SandboxBackendProtocol
from langchain_tests.integration_tests import SandboxIntegrationTests

from on_deepagents.conftest import IMAGE
from rollbox_integrations.deepagents import RollboxSandbox


class TestStandard(SandboxIntegrationTests):
    @pytest.fixture(scope="class")
    def sandbox(self) -> Iterator[SandboxBackendProtocol]:
        with RollboxSandbox(IMAGE, memory="512Mi", egress="offline") as backend:
            # They call it by its older name.
            backend.execute("ln -s $(command -v python3) /usr/local/bin/python")
            yield backend
