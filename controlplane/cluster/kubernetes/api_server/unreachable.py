"""Translates failed connections to the API server into problems, with details about certificates and clocks. Pure."""

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

import aiohttp

from controlplane.errors import Problem

# Larger clock skew is logged: tokens and certificates are checked against both clocks, usually with a minute's leeway.
MAX_SKEW_S: Final = 60.0
_TOO_OLD: Final = re.compile(r"expired", re.I)
_TOO_YOUNG: Final = re.compile(r"not yet valid", re.I)
_OUR_CERTIFICATE: Final = re.compile(r"ALERT|alert")


def skew_s(date: str | None, now_ms: int) -> float:
    """How far our clock is ahead of the server's, by its ``Date`` header; 0 if there is no valid header."""
    try:
        theirs = parsedate_to_datetime(date or "")
    except ValueError:
        return 0.0
    return now_ms / 1000 - theirs.timestamp()


def is_certificate(error: BaseException) -> bool:
    """Whether the error is about a certificate, so that a retry has no use."""
    return isinstance(error, aiohttp.ClientSSLError) or "certificate" in str(error).lower()


def unreachable(url: str, what: str, error: BaseException, now_ms: int) -> Problem:
    """The problem for a call that got no answer.

    Args:
        url: of the API server.
        what: method and path of the call.
        error: why there was no answer.
        now_ms: Unix time; says whether a certificate has expired.

    Returns:
        internal for a certificate and for what is no network error, else upstream_timeout.
    """
    words = str(error) or type(error).__name__
    if is_certificate(error):
        return Problem("internal", f"{what}: {_certificate(url, words, now_ms)}", api_server=url)
    if isinstance(error, TimeoutError):
        return Problem("upstream_timeout", f"the API server at {url} did not answer {what} in time", api_server=url)
    detail = f"the API server at {url} broke off {what}: {words}"
    if isinstance(error, OSError | aiohttp.ClientConnectionError):
        return Problem("upstream_timeout", detail, api_server=url)
    return Problem("internal", detail, api_server=url)


def _certificate(url: str, words: str, now_ms: int) -> str:
    now = datetime.fromtimestamp(now_ms / 1000, UTC).isoformat(timespec="seconds")
    whose = "our client certificate" if _OUR_CERTIFICATE.search(words) else f"the certificate of {url}"
    if _TOO_OLD.search(words):
        return f"{whose} has expired, or the clock of this machine is wrong: it says {now}; renew the certificate"
    if _TOO_YOUNG.search(words):
        return f"{whose} is not valid yet: one of the two clocks is wrong; this machine's says {now}"
    return f"{whose} is not accepted: {words}"
