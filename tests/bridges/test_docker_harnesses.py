"""Harnesses that call Docker, by its SDK and as a command, as published: over the bridge and `rollbox-docker`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pytest

from tests.bridges.running import seen_by_docker
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


@pytest.fixture(scope="module")
def swebench(stack: Product) -> Mapping[str, Any]:
    """What SWE-bench's harness saw; it asks for a capability, which an operator has left out."""
    return seen_by_docker(stack, SWEBENCH, "swebench_cases.py", "--leave-out", "CapAdd")


@pytest.fixture(scope="module")
def llm_sandbox(stack: Product) -> Mapping[str, Any]:
    """What llm-sandbox saw."""
    return seen_by_docker(stack, LLM_SANDBOX, "llm_sandbox_cases.py")


@pytest.mark.parametrize("case", WANTED_BY_SWEBENCH)
def test_swebenchs_harness_sees_what_it_would_see_at_docker(swebench: Mapping[str, Any], case: str) -> None:
    assert swebench[case] == WANTED_BY_SWEBENCH[case]


@pytest.mark.parametrize("case", WANTED_BY_LLM_SANDBOX)
def test_llm_sandbox_sees_what_it_would_see_at_docker(llm_sandbox: Mapping[str, Any], case: str) -> None:
    assert llm_sandbox[case] == WANTED_BY_LLM_SANDBOX[case]
