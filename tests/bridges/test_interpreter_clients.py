"""The published clients of E2B's code interpreter over the bridge, unmodified."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest

from tests.bridges.published import each
from tests.bridges.running import seen
from tests.support.stack import Product

CLIENTS: Final = ("e2b-code-interpreter-2.11.5",)
STYLES: Final = ("async", "sync")
# What the table says of the case in which a client is told that there is no such language.
NOT_SUPPORTED: Final = "R, Java, Bash (Python and JavaScript are)"
WANTED: Final[dict[str, Any]] = {
    "value": {"text": "42", "stdout": ["working\n"], "main": [True]},
    "raised": {"name": "ZeroDivisionError", "value": "division by zero", "says": True},
    "text": {"text": "quoted \\u2028 \u00e9"},
    "shown": {"html": ["<b>x</b>", "<b>x</b>"], "main": [False, True]},
    "streams": {"out": "o\n", "err": "e\n"},
    "variables": {"text": "here", "after": None},
    "contexts": {"where": "/usr", "apart": "NameError", "listed": True, "restarted": "NameError", "removed": True},
    "interrupted": {"error": "TimeoutException", "text": "5"},
    "language": {"says": dict.fromkeys(("r", "java", "bash"), True)},
    "crashed": {"error": "UnexpectedEndOfExecution", "again": "2"},
}


@pytest.fixture(scope="module", params=[each(client, style) for client in CLIENTS for style in STYLES])
def saw(stack: Product, request: pytest.FixtureRequest) -> Mapping[str, Any]:
    """What one client saw in all its cases."""
    client, style = request.param
    return seen(stack, client, "interpreter_cases.py", style)


@pytest.mark.parametrize("case", WANTED)
def test_cells_answer_what_e2bs_would(saw: Mapping[str, Any], case: str, not_supported: Callable[[str], None]) -> None:
    if case == "language":
        not_supported(NOT_SUPPORTED)
    assert saw[case] == WANTED[case]
