"""The text of an API key: a prefix for scanners of secrets, the key's id, 256 random bits and a checksum."""

import hashlib
import re
import secrets
import string
import zlib
from dataclasses import dataclass, field
from typing import Final

PREFIX: Final = "rbxk"
# The id of a key; its digits are a part of the text.
ID: Final = r"^key-[0-9a-z]{12}$"
_FORM: Final = re.compile(rf"{PREFIX}_([0-9a-z]{{12}})_[0-9A-Za-z]{{43}}([0-9A-Za-z]{{6}})")
_ID_LETTERS: Final = string.digits + string.ascii_lowercase
_LETTERS: Final = _ID_LETTERS + string.ascii_uppercase
# 62 ** 43 is a little more than 2 ** 256.
_SECRET: Final = 43
_CHECK: Final = 6


@dataclass(frozen=True, slots=True)
class KeyText:
    """A key as its holder has it.

    Attributes:
        id: by which its record is found.
        text: the whole key, a secret.
    """

    id: str
    text: str = field(repr=False)


def new_key(key_id: str | None = None) -> KeyText:
    """A random key; ``key_id``: of a key that gets another secret."""
    digits = _random(_ID_LETTERS, 12) if key_id is None else key_id.removeprefix("key-")
    body = f"{PREFIX}_{digits}_{_random(_LETTERS, _SECRET)}"
    return KeyText(f"key-{digits}", body + _checksum(body))


def key_id(text: str) -> str | None:
    """The id in a key's text; None: it has another form, as keys of the settings have.

    Raises:
        ValueError: it has the form of a key, or begins like one, and was cut off or mistyped.
    """
    if not text.startswith(f"{PREFIX}_"):
        return None
    found = _FORM.fullmatch(text)
    if found is None or _checksum(text[:-_CHECK]) != found[2]:
        raise ValueError(f"it begins with {PREFIX}_, and its checksum is wrong: it was cut off or mistyped")
    return f"key-{found[1]}"


def digest(text: str) -> str:
    """What is kept of a key. No salt or slow hash: there is nothing to guess in 256 random bits."""
    return hashlib.sha256(text.encode()).hexdigest()


def _random(letters: str, length: int) -> str:
    return "".join(secrets.choice(letters) for _ in range(length))


def _checksum(body: str) -> str:
    number, digits = zlib.crc32(body.encode()), ""
    while len(digits) < _CHECK:
        number, digit = divmod(number, len(_LETTERS))
        digits = _LETTERS[digit] + digits
    return digits
