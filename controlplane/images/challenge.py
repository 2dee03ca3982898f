"""How a registry wants to be asked: the ``WWW-Authenticate`` header (RFC 9110, section 11.6.1), and its tokens.

Tokens: https://distribution.github.io/distribution/spec/auth/token/.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

# Longer headers are a mistake or an attack; a real one has about 200 characters.
MAX_HEADER_CHARS: Final = 8192
# The lifetime of a token that tells none, by the specification.
LIFETIME_S: Final = 60
_WORD: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_PARAMETER: Final = re.compile(rf'({_WORD})\s*=\s*(?:"((?:[^"\\]|\\.)*)"|({_WORD}))')
_SCHEME: Final = re.compile(rf"({_WORD})(?=\s|,|$)")
_BETWEEN: Final = re.compile(r"[\s,]+")


@dataclass(frozen=True, slots=True)
class Challenge:
    """One way to authenticate.

    Attributes:
        scheme: in small letters: ``bearer``, ``basic``, ...
        parameters: by name, in small letters.
    """

    scheme: str
    parameters: Mapping[str, str] = field(default_factory=dict)


def challenges(header: str) -> Sequence[Challenge]:
    """The challenges of a header, in their order; what cannot be read ends the list."""
    header = header[:MAX_HEADER_CHARS]
    found: list[tuple[str, dict[str, str]]] = []
    at = 0
    while at < len(header):
        if between := _BETWEEN.match(header, at):
            at = between.end()
        elif (parameter := _PARAMETER.match(header, at)) and found:
            name, quoted, plain = parameter.groups()
            found[-1][1].setdefault(name.lower(), plain or re.sub(r"\\(.)", r"\1", quoted or ""))
            at = parameter.end()
        elif scheme := _SCHEME.match(header, at):
            found.append((scheme[1].lower(), {}))
            at = scheme.end()
        else:
            break
    return [Challenge(scheme, parameters) for scheme, parameters in found]


def token_in(body: bytes) -> tuple[str, int]:
    """The token in the answer of a registry's service of tokens, and for how long it holds (s).

    Raises:
        ValueError: there is none.
    """
    try:
        told: dict[str, Any] = json.loads(body)
        token, lifetime = told.get("token") or told.get("access_token"), told.get("expires_in")
    except (ValueError, AttributeError, RecursionError) as error:
        raise ValueError("its tokens' service answers no JSON object") from error
    if not isinstance(token, str) or not token.isascii() or not token.isprintable() or not token:
        raise ValueError("its tokens' service gives no token")
    return token, lifetime if isinstance(lifetime, int) and 0 < lifetime < 86_400 else LIFETIME_S
