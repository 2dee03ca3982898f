"""SandboxFusion's published clients over the bridge, unmodified: what each sees is what that server would answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest

from tests.bridges.published import each, of_client
from tests.bridges.running import seen
from tests.support.stack import Product

CLIENT: Final = "sandbox-fusion-0.3.7"
STYLES: Final = ("sync", "async")
FUSION: Final[dict[str, Any]] = {
    "printed": ["Success", "Finished", 0, "123\n"],
    "with_input": ["Success", "Finished", 0, "65535\n"],
    "large_input": ["Success", "Finished", 0, "3000000\n"],
    "timed_out": ["Failed", "TimeLimitExceeded", None, "1\n"],
    "failed": ["Failed", "Finished", 1, "", True],
    "syntax": ["Failed", "Finished", 1, "", True],
    "signalled": ["Failed", "Finished", -9, ""],
    "files": [["Success", "Finished", 0, "hello\n"], {"made": "1", "/mnt/too": "2"}],
    "shell": ["Failed", "Finished", 3, "WORDS\n"],
    "apart": ["Success", "Finished", 0, "False True\n"],
    "forks": ["Failed", ["Success", "Finished", 0, "1\n"]],
    "language": [True, True],
    "datasets": [True, True],
    "notebook": [
        "Success",
        0,
        [
            ["", "", [], []],
            ["", "e", [{"text/plain": "'hello'"}], []],
            ["", "", [], ["AssertionError"]],
            ["hello\n", "", [], []],
        ],
    ],
    "notebook_files": ["Success", "77"],
    "notebook_timed_out": ["Failed", "TimeLimitExceeded", ["1\n", ""]],
    "many": [*range(12)],
}
VERL: Final[dict[str, Any]] = {
    "right": 1.0,
    "half_right": [0.5, ["success", "wrong_answer"]],
    "function": 1.0,
    "asserts": 0.5,
    "codes": {"right": [True], "wrong": [False], "raises": [-2], "hangs": [-3]},
    "does_not_compile": [[-1], "api_error", True],
    "memory": [[-2], True],
    "wrong_key": [[-1], True],
    "many": 1.0,
}
TINKER: Final[dict[str, Any]] = {
    "ran": [
        [True, "Success", "Finished", "content\n"],
        [False, "Failed", "Finished", ""],
        [False, "Failed", "TimeLimitExceeded", ""],
    ],
    "refused": [False, True],
}


@pytest.fixture(scope="module", params=[each(CLIENT, style) for style in STYLES])
def saw(stack: Product, request: pytest.FixtureRequest) -> Mapping[str, Any]:
    """What the client of SandboxFusion saw in all its cases."""
    client, style = request.param
    return seen(stack, client, "fusion_cases.py", style, protocol="fusion")


@pytest.mark.parametrize("case", FUSION)
def test_its_own_client_sees_what_it_would_see_of_its_server(
    saw: Mapping[str, Any], case: str, not_supported: Callable[[str], None]
) -> None:
    if case == "datasets":
        not_supported("data sets (`submit`, `get_prompts`: it runs code alone)")
    assert saw[case] == FUSION[case]


@pytest.fixture(scope="module")
def saw_of_verl(stack: Product) -> Mapping[str, Any]:
    """What verl's reward saw in all its cases."""
    return seen(stack, "verl-0.9.1", "verl_cases.py", protocol="fusion")


@of_client("verl-0.9.1")
@pytest.mark.parametrize("case", VERL)
def test_the_reward_of_verl_is_that_of_the_program(saw_of_verl: Mapping[str, Any], case: str) -> None:
    assert saw_of_verl[case] == VERL[case]


@pytest.fixture(scope="module")
def saw_of_tinker(stack: Product) -> Mapping[str, Any]:
    """What the client of tinker-cookbook saw in all its cases."""
    return seen(stack, "tinker-cookbook-0.6.1", "tinker_cases.py", protocol="fusion")


@of_client("tinker-cookbook-0.6.1")
@pytest.mark.parametrize("case", TINKER)
def test_the_client_of_tinker_cookbook_sees_the_same(saw_of_tinker: Mapping[str, Any], case: str) -> None:
    assert saw_of_tinker[case] == TINKER[case]
