"""Harnesses that call Docker, by its SDK and as a command, as published: over the bridge and `rollbox-docker`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import pytest

from tests.bridges.published import of_client
from tests.bridges.running import HERE, docker, environment_of, seen_by_docker, told_by
from tests.support import integrations
from tests.support.stack import Product

SWEBENCH: Final = "swebench-5.0.2"
LLM_SANDBOX: Final = "llm-sandbox-0.3.46"
SWE_REX: Final = "swe-rex-1.4.0"
SMOLAGENTS: Final = "smolagents-1.26.0"
MINI_SWE_AGENT: Final = "mini-swe-agent"
KERNEL_GATEWAY: Final = "kernel-gateway-3.0.1"
WANTED_BY_SWEBENCH: Final[dict[str, Any]] = {
    "built": {"name": "sweb.eval.x86_64.toy__toy-1:latest", "out": "built\n", "failed": True},
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

WANTED_BY_SWE_REX: Final[dict[str, Any]] = {
    "built": {"id": True, "named": True},
    "sessions": {"kept": ["1", "2", "/srv"], "failed": 3},
    "commands": {"out": "out\n", "err": "err\n", "code": 4},
    "files": {"content": ["h\u00e9", "up"]},
    "stopped": {"gone": True},
}
WANTED_BY_SMOLAGENTS: Final[dict[str, Any]] = {
    "prepared": {"tags": ["kernel-gateway:1"]},
    "code": {"output": "120", "logs": "said"},
    "sent": {"output": "3"},
    "failed": {"says": True, "goes_on": "2"},
    "cleaned": {"left": []},
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


@pytest.fixture(scope="module")
def swe_rex(stack: Product) -> Mapping[str, Any]:
    """What SWE-ReX's deployment saw, with `rollbox-docker` as `docker`."""
    return seen_by_docker(stack, SWE_REX, "swe_rex_cases.py")


@pytest.fixture(scope="module")
def smolagents(stack: Product) -> Mapping[str, Any]:
    """What smolagents' executor saw; the packages of its image come from an environment that is made for it."""
    kernels = environment_of(KERNEL_GATEWAY)
    return seen_by_docker(stack, SMOLAGENTS, "smolagents_cases.py", told={"KERNELS": str(kernels)})


@of_client(SWE_REX)
@pytest.mark.parametrize("case", WANTED_BY_SWE_REX)
def test_swe_rex_sees_what_it_would_see_at_docker(swe_rex: Mapping[str, Any], case: str) -> None:
    assert swe_rex[case] == WANTED_BY_SWE_REX[case]


@of_client(SMOLAGENTS)
@pytest.mark.parametrize("case", WANTED_BY_SMOLAGENTS)
def test_smolagents_sees_what_it_would_see_at_docker(smolagents: Mapping[str, Any], case: str) -> None:
    assert smolagents[case] == WANTED_BY_SMOLAGENTS[case]


@of_client(MINI_SWE_AGENT)
@pytest.mark.parametrize("case", WANTED_BY_MINI_SWE_AGENT)
def test_mini_swe_agent_sees_what_it_would_see_at_docker(mini_swe_agent: Mapping[str, Any], case: str) -> None:
    assert mini_swe_agent[case] == WANTED_BY_MINI_SWE_AGENT[case]


@of_client(SWEBENCH)
@pytest.mark.parametrize("case", WANTED_BY_SWEBENCH)
def test_swebenchs_harness_sees_what_it_would_see_at_docker(swebench: Mapping[str, Any], case: str) -> None:
    assert swebench[case] == WANTED_BY_SWEBENCH[case]


@of_client(LLM_SANDBOX)
@pytest.mark.parametrize("case", WANTED_BY_LLM_SANDBOX)
def test_llm_sandbox_sees_what_it_would_see_at_docker(llm_sandbox: Mapping[str, Any], case: str) -> None:
    assert llm_sandbox[case] == WANTED_BY_LLM_SANDBOX[case]
