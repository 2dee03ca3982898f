"""The hosts whose suites run, where their versions are read of, and what their tables say that ran."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

ADAPTER: Final = "the tests of the adapter"


@dataclass(frozen=True)
class Host:
    """A host.

    Attributes:
        title: as tables have it.
        distribution: whose version is the host's; empty where a checkout is.
        python: that its environment has; where it is not the tests' own, the oldest that the host runs on.
        checkout: the variable that names a folder with its checkout, for a host that no registry has.
        own_tests: whether its suite has the tests in the host's source distribution, as ROLLBOX_TEST_OWN.
        images: runtime images that its tests have besides the usual one, each as ROLLBOX_TEST_<NAME>_IMAGE.
        programs: what modules of its suite run that are not the adapter's tests alone, by the names of the modules.
    """

    title: str
    distribution: str = ""
    python: str = "3.11"
    checkout: str = ""
    own_tests: bool = False
    images: tuple[str, ...] = ()
    programs: Mapping[str, str] = field(default_factory=dict)


HOSTS: Final[Mapping[str, Host]] = {
    "inspect": Host(
        "inspect-ai", "inspect-ai", programs={"test_self_check": "its own `self_check`, all checks of its version"}
    ),
    "verifiers": Host(
        "verifiers",
        "verifiers",
        programs={"test_validate": "its `vf-validate` over 20 problems, each solved and untouched"},
    ),
    "harbor": Host(
        "Harbor",
        "harbor",
        python="3.12",
        programs={
            "test_oracle": "its runner over ten tasks with Dockerfiles: the oracle, and an agent that does nothing"
        },
    ),
    "trl": Host(
        "TRL",
        "trl",
        python="3.12",
        programs={"test_suites": "its environments and rows over the same ten tasks, with scripted tools"},
    ),
    "openenv": Host("OpenEnv", "openenv"),
    "nemo_gym": Host(
        "NeMo Gym",
        "nemo-gym",
        python="3.13.14",
        programs={"test_humaneval": "its resources server with HumanEval: 20 problems, each solved and untouched"},
    ),
    "swe_rex": Host(
        "SWE-ReX",
        "swe-rex",
        own_tests=True,
        images=("swe",),
        programs={"test_own": "its own tests of a runtime, a server and a remote deployment"},
    ),
    "tinker_cookbook": Host("tinker-cookbook", "tinker-cookbook"),
    "uni_agent": Host("uni-agent", checkout="ROLLBOX_TEST_UNI_AGENT"),
    "mini_swe_agent": Host(
        "mini-swe-agent",
        "mini-swe-agent",
        images=("swe",),
        programs={"test_software": "its agent over three packages with a bug: a patch that mends it, and an empty one"},
    ),
    "openai_agents": Host(
        "openai-agents",
        "openai-agents",
        programs={"test_runs": "its runner with scripted answers, over ten problems of HumanEval too"},
    ),
    "mcp": Host("MCP clients", "mcp", programs={"test_typescript": "its clients in TypeScript, of both generations"}),
    "smolagents": Host("smolagents", "smolagents"),
    "deepagents": Host("deepagents", "deepagents", programs={"test_standard": "LangChain's own tests of backends"}),
    "llm_sandbox": Host("llm-sandbox", "llm-sandbox"),
    "open_instruct": Host("open-instruct", python="3.12", checkout="ROLLBOX_TEST_OPEN_INSTRUCT"),
}
