"""Validates and parses values: every rule takes the text and raises ``ValueError`` with a message for the user."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self
from urllib.parse import urlsplit

from controlplane.images.reference import check_registry, names_registry

# Linux: sun_path has 108 bytes, the last of them NUL.
MAX_SOCKET_PATH_BYTES: Final = 107
MIN_KEY_CHARS: Final = 16
# As `program::feed_key` of the Rust side has it.
MIN_FEED_KEY_CHARS: Final = 32
MAX_DOMAIN_CHARS: Final = 180
_LABEL: Final = "[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_DOMAIN: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")


@dataclass(frozen=True, slots=True)
class Listen:
    """The address of a server: the path of a Unix socket, or host and port."""

    path: Path | None = None
    host: str = ""
    port: int = 0

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads ``unix:/path`` or ``host:port``.

        Raises:
            ValueError: it is neither; the message is the rule.
        """
        if text.startswith("unix:"):
            return cls(path=socket_path(text))
        host, colon, port = text.rpartition(":")
        if not colon or not host or not port.isdigit() or int(port) > 65535:
            raise ValueError("must be unix:/path or host:port")
        return cls(host=host.strip("[]"), port=int(port))

    def __str__(self) -> str:
        return f"unix:{self.path}" if self.path else f"{self.host}:{self.port}"


def socket_path(text: str) -> Path:
    """The path in ``unix:/p`` or ``unix:///p``.

    Raises:
        ValueError: no absolute path, or too long for a socket; the message is the rule.
    """
    path = Path(text.removeprefix("unix:").removeprefix("//"))
    if not text.startswith("unix:") or not path.is_absolute():
        raise ValueError("must be unix: and an absolute path")
    if len(str(path).encode()) > MAX_SOCKET_PATH_BYTES:
        raise ValueError(f"a socket path has at most {MAX_SOCKET_PATH_BYTES} bytes")
    return path


def share(text: str) -> int:
    """A share from 0.001 to 1, in thousandths.

    Raises:
        ValueError: it is none; the message is the rule.
    """
    if not re.fullmatch(r"(0\.\d{1,3}|1|1\.0{1,3})", text) or not (thousandths := round(float(text) * 1000)):
        raise ValueError("must be from 0.001 to 1, with three decimals at most")
    return thousandths


def feed_key_file(text: str) -> str:
    """The key in a file: one line of printable characters without spaces.

    Raises:
        ValueError: it cannot be read, or is no key; the message is the rule.
    """
    try:
        key = Path(text).read_text(encoding="ascii", errors="replace").rstrip()
    except OSError as error:
        raise ValueError(f"must be a file that can be read; {error.strerror}") from error
    if not re.fullmatch(rf"[!-~]{{{MIN_FEED_KEY_CHARS},}}", key):
        raise ValueError(
            f"must be a file of one line of at least {MIN_FEED_KEY_CHARS} printable characters without spaces"
        )
    return key


def api_keys(text: str) -> dict[str, str]:
    """``owner:key`` pairs, separated by commas or line breaks; returns key -> owner.

    Raises:
        ValueError: it is not a list of such pairs, a key is too short, or two owners have one key; the message is the
            rule, and which pair breaks it.
    """
    keys: dict[str, str] = {}
    for number, pair in enumerate(filter(None, text.replace("\n", ",").split(",")), start=1):
        owner, colon, key = pair.strip().partition(":")
        if not owner or not colon or len(key) < MIN_KEY_CHARS:
            rule = f"must be owner:key,owner:key with keys of at least {MIN_KEY_CHARS} characters"
            raise ValueError(f"{rule}; pair {number} is not{f' (owner {owner})' if colon and owner else ''}")
        if keys.setdefault(key, owner) != owner:
            raise ValueError(f"must give each owner keys of its own; pair {number} gives {owner} a key of {keys[key]}")
    if not keys:
        raise ValueError("must be owner:key,owner:key with at least one pair")
    return keys


def keys_file(text: str) -> dict[str, str]:
    """A file that holds what ``api_keys`` reads.

    Raises:
        ValueError: it cannot be read, or holds something else; the message is the rule.
    """
    try:
        return api_keys(file(text).read_text().strip())
    except OSError as error:
        raise ValueError(f"must be readable: {error}") from error


def redis_url(text: str) -> str:
    """The URL of a Redis: ``redis://``, ``rediss://`` or ``unix://``.

    Raises:
        ValueError: it is not; the message is the rule.
    """
    parts = urlsplit(text)
    place = parts.path if parts.scheme == "unix" else parts.hostname
    if parts.scheme not in ("redis", "rediss", "unix") or not place:
        raise ValueError("must be redis://host:port, rediss://host:port or unix:///path")
    _ = parts.port
    return text


def http_url(text: str) -> str:
    """``http://host:port`` without a path or query.

    Raises:
        ValueError: it is not; the message is the rule.
    """
    parts = urlsplit(text)
    if parts.scheme != "http" or not parts.hostname or parts.port is None or parts.path.strip("/") or parts.query:
        raise ValueError("must be http://host:port")
    return text.rstrip("/")


def file(text: str) -> Path:
    """A file that exists.

    Raises:
        ValueError: it is not; the message is the rule.
    """
    if not Path(text).is_file():
        raise ValueError("must name a file that exists")
    return Path(text).resolve()


def absolute_path(text: str) -> Path:
    """An absolute path, which need not exist.

    Raises:
        ValueError: it is not; the message is the rule.
    """
    if not Path(text).is_absolute():
        raise ValueError("must be an absolute path")
    return Path(text)


def certificates(text: str) -> Path:
    """A folder with ``ca.crt``, ``tls.crt`` and ``tls.key``.

    Raises:
        ValueError: it is not; the message is the rule.
    """
    missing = [name for name in ("ca.crt", "tls.crt", "tls.key") if not (Path(text) / name).is_file()]
    if missing:
        raise ValueError(f"must name a folder with ca.crt, tls.crt and tls.key; there is no {missing[0]}")
    return Path(text)


def namespaced(text: str) -> tuple[str, str]:
    """``NAMESPACE/NAME`` of an object of Kubernetes.

    Raises:
        ValueError: it is not; the message is the rule.
    """
    namespace, slash, name = text.partition("/")
    if not slash or not re.fullmatch(_LABEL, namespace) or not _DOMAIN.fullmatch(name):
        raise ValueError("must be NAMESPACE/NAME, as Kubernetes writes names")
    return namespace, name


def domain(text: str) -> str:
    """A DNS name, short enough for ``PORT-ID.`` in front of it (RFC 1035: at most 253 characters in all).

    Raises:
        ValueError: it is not; the message is the rule.
    """
    if len(text) > MAX_DOMAIN_CHARS or not _DOMAIN.fullmatch(text):
        raise ValueError(f"must be a DNS name in small letters of at most {MAX_DOMAIN_CHARS} characters")
    return text


def word(text: str) -> str:
    """Any text that is not blank.

    Raises:
        ValueError: it is not; the message is the rule.
    """
    if not text.strip():
        raise ValueError("must not be empty")
    return text.strip()


def words(text: str) -> tuple[str, ...]:
    """Texts separated by commas; none when empty."""
    return tuple(one.strip() for one in text.split(",") if one.strip())


def folders(text: str) -> tuple[str, ...]:
    """Absolute paths of folders in their shortest form, separated by commas.

    Raises:
        ValueError: one is not; the message is the rule.
    """
    for one in words(text):
        if one == "/" or not one.startswith("/") or any(part in ("", ".", "..") for part in one[1:].split("/")):
            raise ValueError("must be absolute paths without '.', '..' and a slash at the end, and not the root")
    return words(text)


def hosts(text: str) -> tuple[str, ...]:
    """DNS names, separated by commas.

    Raises:
        ValueError: one is none; the message is the rule.
    """
    return tuple(domain(one) for one in words(text))


def registries(text: str) -> tuple[str, ...]:
    """Hosts of image registries, perhaps with ports, separated by commas."""
    for host in words(text):
        check_registry(host)
    return words(text.lower())


def registry(text: str) -> str:
    """The host of one image registry, perhaps with a port, as the name of an image begins with it.

    Raises:
        ValueError: it is not; the message is the rule.
    """
    check_registry(text)
    if not names_registry(text) or text != text.lower():
        raise ValueError("must have a dot or a port, in small letters: else names of images would not be read as its")
    return text


def host_and_port(text: str) -> str:
    """``host:port`` of a server that is called.

    Raises:
        ValueError: it is not; the message is the rule.
    """
    host, _, port = text.rpartition(":")
    if not host or host == "unix" or not port.isdigit() or int(port) not in range(1, 65536):
        raise ValueError("must be host:port")
    return text


def tls_folder(text: str) -> Path:
    """A folder with the files of a Secret for mutual TLS.

    Raises:
        ValueError: it is not; the message is the rule.
    """
    for name in ("ca.crt", "tls.crt", "tls.key"):
        if not (Path(text) / name).is_file():
            raise ValueError(f"must name a folder that has {name}")
    return Path(text)


def names_by_owner(text: str) -> Mapping[str, Sequence[str]]:
    """A JSON object of lists of names, such as ``{"alice": ["alices-registry"]}``.

    Raises:
        ValueError: it is not; the message is the rule.
    """
    value = _json(text)
    if not isinstance(value, dict) or not all(
        isinstance(names, list) and names and all(isinstance(one, str) and one for one in names)
        for names in value.values()
    ):
        raise ValueError('must be a JSON object of lists of names, such as {"alice": ["alices-registry"]}')
    return value


def repositories(text: str) -> tuple[str, ...]:
    """Beginnings of images' names, at least one, each with its registry and a slash at its end, separated by commas.

    Raises:
        ValueError: it is not; the message is the rule.
    """
    for one in words(text):
        host, slash, _ = one.partition("/")
        check_registry(host)
        if not names_registry(host) or not slash or not one.endswith("/"):
            # Without it registry.example.com/team lets registry.example.com/team-2 in.
            raise ValueError("must be beginnings of images' names that end with a slash: registry.example.com/estargz/")
    if not words(text):
        raise ValueError("must name at least one beginning: registry.example.com/estargz/")
    return words(text)


def one_of(*choices: str) -> Callable[[str], str]:
    """One of ``choices``."""

    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}")
        return text

    return parse


def count(least: int, most: int) -> Callable[[str], int]:
    """A whole number from ``least`` to ``most``."""

    def parse(text: str) -> int:
        if not (text.isascii() and text.isdigit()) or not least <= int(text) <= most:
            raise ValueError(f"must be a whole number from {least} to {most}")
        return int(text)

    return parse


def labels(text: str) -> Mapping[str, str]:
    """A JSON object with string values, such as ``{"pool": "sandboxes"}``.

    Raises:
        ValueError: it is not; the message is the rule.
    """
    value = _json(text)
    if not isinstance(value, dict) or not all(isinstance(one, str) for one in value.values()):
        raise ValueError('must be a JSON object of texts, such as {"pool": "sandboxes"}')
    return value


def objects(text: str) -> Sequence[Mapping[str, object]]:
    """A JSON list of objects, such as the tolerations of a pod.

    Raises:
        ValueError: it is not; the message is the rule.
    """
    value = _json(text)
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise ValueError('must be a JSON list of objects, such as [{"key": "sandboxes", "operator": "Exists"}]')
    return value


def _json(text: str) -> object:
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"must be JSON: {error}") from error
    return value
