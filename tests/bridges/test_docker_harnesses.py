"""Harnesses that call Docker, by its SDK and as a command, as published: over the bridge and `rollbox-docker`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import pytest

from tests.bridges.running import HERE, docker, seen_by_docker, told_by
from tests.support import integrations
from tests.support.stack import Product

SWEBENCH: Final = "swebench-5.0.2"
LLM_SANDBOX: Final = "llm-sandbox-0.3.46"
WANTED_BY_SWEBENCH: Final[dict[str, Any]] = {
    "copied": {"out": "copied\n"},
    "tested": {"lines": ["failed", "passed"], "timed_out": False},
    "timed_out": {"output": "begun\n", "timed_out": True, "left": False},
    "cleaned": {"left": []},
}
WANTED_BY_LLM_SANDBOX: Final[dict[str, Any]] = {
    "files": {"same": True},
    "commands": {"code": 3, "out": "out\n", "err": "err\n"},
    "code": {"out": "42\n", "code": 0, "failed": 1, "says": True},
}

WANTED_BY_MINI_SWE_AGENT: Final[dict[str, Any]] = {
    "commands": {"lines": ["err", "out"], "code": 3},
    "settings": {"lines": ["a b", "/usr"]},
    "late": {"code": -1, "late": True},
    "submitted": {"says": "diff\n"},
    "cleaned": {"before": 1, "left": []},
}


@pytest.fixture(scope="module")
def swebench(stack: Product) -> Mapping[str, Any]:
    """What SWE-bench's harness saw; it asks for a capability, which an operator has left out."""
    return seen_by_docker(stack, SWEBENCH, "swebench_cases.py", "--leave-out", "CapAdd")


@pytest.fixture(scope="module")
def llm_sandbox(stack: Product) -> Mapping[str, Any]:
    """What llm-sandbox saw."""
    return seen_by_docker(stack, LLM_SANDBOX, "llm_sandbox_cases.py")


@pytest.fixture(scope="module")
def mini_swe_agent(stack: Product) -> Mapping[str, Any]:
    """What mini-swe-agent's environment saw, with `rollbox-docker` as its executable."""
    python = integrations.environment("mini_swe_agent", "3.11")

    async def all_cases() -> Mapping[str, Any]:
        async with docker(stack) as environ:
            told = {**environ, "ROLLBOX_DOCKER": f"{environ['HOME']}/docker", "MSWEA_SILENT_STARTUP": "1"}
            return await told_by([str(python), str(HERE / "clients/mini_swe_agent_cases.py")], told)

    return asyncio.run(all_cases())


@pytest.mark.parametrize("case", WANTED_BY_MINI_SWE_AGENT)
def test_mini_swe_agent_sees_what_it_would_see_at_docker(mini_swe_agent: Mapping[str, Any], case: str) -> None:
    assert mini_swe_agent[case] == WANTED_BY_MINI_SWE_AGENT[case]


@pytest.mark.parametrize("case", WANTED_BY_SWEBENCH)
def test_swebenchs_harness_sees_what_it_would_see_at_docker(swebench: Mapping[str, Any], case: str) -> None:
    assert swebench[case] == WANTED_BY_SWEBENCH[case]


@pytest.mark.parametrize("case", WANTED_BY_LLM_SANDBOX)
def test_llm_sandbox_sees_what_it_would_see_at_docker(llm_sandbox: Mapping[str, Any], case: str) -> None:
    assert llm_sandbox[case] == WANTED_BY_LLM_SANDBOX[case]
