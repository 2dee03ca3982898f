"""What the answer of an endpoint means. Pure."""

from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Final, Literal

Verdict = Literal["taken", "later", "refused", "gone"]
# What is said of the message itself, and not of the moment.
_OF_THE_MESSAGE: Final = frozenset({400, 413, 415, 422})
_GONE: Final = 410
# A receiver that asks for more is asked again all the same.
MOST_RETRY_AFTER_MS: Final = 3_600_000
_MOST_DIGITS: Final = 9


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of an attempt.

    Attributes:
        verdict: taken; later: try again; refused: it does not want this message; gone: it wants none any more.
        detail: in a few words.
        retry_after_ms: how long it wants to be left alone.
    """

    verdict: Verdict
    detail: str = ""
    retry_after_ms: int = 0


def judged(status: int, retry_after: str | None, now_ms: int) -> Answer:
    """What an answer means.

    Args:
        status: of HTTP.
        retry_after: the header (seconds, or a date).
        now_ms: Unix ms.
    """
    detail = f"HTTP {status}"
    if 200 <= status < 300:
        return Answer("taken", detail)
    if status == _GONE:
        return Answer("gone", detail)
    if 300 <= status < 400:
        detail = f"{detail}: redirects are not followed"
    if status in _OF_THE_MESSAGE:
        return Answer("refused", detail)
    return Answer("later", detail, _pause_ms(retry_after, now_ms))


def _pause_ms(text: str | None, now_ms: int) -> int:
    text = (text or "").strip()
    if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS:
        asked_ms = int(text) * 1_000
    else:
        try:
            asked_ms = round(parsedate_to_datetime(text).timestamp() * 1_000) - now_ms
        except (ValueError, TypeError, IndexError, OverflowError):
            asked_ms = 0
    return min(max(0, asked_ms), MOST_RETRY_AFTER_MS)
