"""What answers of endpoints mean."""

from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.webhooks import judged
from controlplane.webhooks.answers import MOST_RETRY_AFTER_MS

NOW_MS = 1_800_000_000_000


@pytest.mark.parametrize(
    ("status", "verdict"),
    [
        (200, "taken"),
        (204, "taken"),
        (302, "later"),
        (400, "refused"),
        (401, "later"),
        (404, "later"),
        (410, "gone"),
        (413, "refused"),
        (429, "later"),
        (500, "later"),
        (503, "later"),
    ],
)
def test_each_status_means_something(status: int, verdict: str) -> None:
    answer = judged(status, None, NOW_MS)
    assert (answer.verdict, answer.retry_after_ms) == (verdict, 0)
    assert f"HTTP {status}" in answer.detail


@pytest.mark.parametrize(
    ("text", "pause_ms"),
    [
        ("0", 0),
        (" 17 ", 17_000),
        ("999999", MOST_RETRY_AFTER_MS),
        ("-5", 0),
        ("soon", 0),
        ("9" * 400, 0),
        (formatdate(NOW_MS / 1000 + 30, usegmt=True), 30_000),
        (formatdate(NOW_MS / 1000 - 30, usegmt=True), 0),
        ("Fri, 99 Feb 99999 25:61:61 GMT", 0),
    ],
)
def test_a_receiver_says_when_it_wants_to_be_asked_again(text: str, pause_ms: int) -> None:
    assert judged(503, text, NOW_MS).retry_after_ms == pause_ms


@given(st.integers(100, 999), st.text(max_size=60))
def test_no_answer_breaks_anything(status: int, text: str) -> None:
    assert 0 <= judged(status, text, NOW_MS).retry_after_ms <= MOST_RETRY_AFTER_MS
