"""The published clients of E2B's code interpreter over the bridge, unmodified."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pytest

from tests.bridges.running import seen
from tests.support.stack import Product

CLIENTS: Final = ("e2b-code-interpreter-2.11.5",)
STYLES: Final = ("async", "sync")
WANTED: Final[dict[str, Any]] = {
    "value": {"text": "42", "stdout": ["working\n"], "main": [True]},
    "raised": {"name": "ZeroDivisionError", "value": "division by zero", "says": True},
    "text": {"text": "quoted \\u2028 \u00e9"},
    "shown": {"html": ["<b>x</b>", "<b>x</b>"], "main": [False, True]},
    "streams": {"out": "o\n", "err": "e\n"},
    "variables": {"text": "here", "after": None},
    "contexts": {"where": "/usr", "apart": "NameError", "listed": True, "restarted": "NameError", "removed": True},
    "interrupted": {"error": "TimeoutException", "text": "5"},
    "language": {"says": True},
    "crashed": {"error": "UnexpectedEndOfExecution", "again": "2"},
}


@pytest.fixture(scope="module", params=[(client, style) for client in CLIENTS for style in STYLES], ids="-".join)
def saw(stack: Product, request: pytest.FixtureRequest) -> Mapping[str, Any]:
    """What one client saw in all its cases."""
    client, style = request.param
    return seen(stack, client, "interpreter_cases.py", style)


@pytest.mark.parametrize("case", WANTED)
def test_cells_answer_what_e2bs_would(saw: Mapping[str, Any], case: str) -> None:
    assert saw[case] == WANTED[case]
