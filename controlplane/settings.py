"""Every setting of the control plane, read from the environment once, before anything is bound."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self, TypeVar

PREFIX: Final = "ROLLBOX_CONTROLPLANE_"
# Linux: sun_path has 108 bytes, the last of them NUL.
MAX_SOCKET_PATH_BYTES: Final = 107
EXIT_CONFIG: Final = 64

T = TypeVar("T")


class SettingError(Exception):
    """A setting is missing or breaks its rule; the process ends with ``EXIT_CONFIG``."""

    def __init__(self, variable: str, value: str | None, rule: str) -> None:
        shown = "is not set" if value is None else f"is {value!r}"
        super().__init__(f"{variable} {shown}: {rule}")
        self.variable = variable
        self.value = value
        self.rule = rule


@dataclass(frozen=True, slots=True)
class Listen:
    """Where a server listens: a unix socket's path, or host and port."""

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


def _api_keys(text: str) -> dict[str, str]:
    keys: dict[str, str] = {}
    for pair in text.split(","):
        owner, colon, key = pair.strip().partition(":")
        if not owner or not colon or len(key) < 16:
            raise ValueError("must be owner:key,owner:key with keys of at least 16 characters")
        keys[key] = owner
    return keys


def _file(text: str) -> Path:
    if not Path(text).is_file():
        raise ValueError("must name a file that exists")
    return Path(text).resolve()


def _state_dir(text: str) -> Path:
    if not Path(text).is_absolute():
        raise ValueError("must be an absolute path")
    return Path(text)


def _count(least: int, most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not text.isdigit() or not least <= int(text) <= most:
            raise ValueError(f"must be a whole number from {least} to {most}")
        return int(text)

    return parse


@dataclass(frozen=True, slots=True)
class Settings:
    """What the control plane runs with.

    Attributes:
        state_dir: holds the sandboxes' sockets; short, for the limit on socket paths.
        api, ready, routes: where the three servers listen.
        api_keys: key -> owner.
        signing_key_file: Ed25519 private key, PEM.
        engine_url: ``unix:///path`` of a Docker Engine API.
        starts_in_flight: how many sandboxes start at once; the others wait in order.
        max_sandboxes: for all owners together; 0 = no limit.
    """

    state_dir: Path
    api: Listen
    ready: Listen
    routes: Listen
    api_keys: Mapping[str, str]
    signing_key_file: Path
    engine_url: str
    sidecar_binary: Path
    target_binary: Path
    starts_in_flight: int
    max_sandboxes: int

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Self:
        """Reads all settings.

        Raises:
            SettingError: the first one that is missing or breaks its rule.
        """
        read = _Reader(environ)
        state_dir = read("STATE_DIR", _state_dir)
        return cls(
            state_dir=state_dir,
            api=read("API", Listen.parse, f"unix:{state_dir}/api.sock"),
            ready=read("READY", Listen.parse, f"unix:{state_dir}/ready/ready.sock"),
            routes=read("ROUTES", Listen.parse, f"unix:{state_dir}/routes.sock"),
            api_keys=read.secret("API_KEYS", _api_keys),
            signing_key_file=read("SIGNING_KEY_FILE", _file),
            engine_url=f"unix://{read('ENGINE_URL', socket_path)}",
            sidecar_binary=read("SIDECAR_BINARY", _file),
            target_binary=read("TARGET_BINARY", _file),
            starts_in_flight=read("STARTS_IN_FLIGHT", _count(1, 1024), "4"),
            max_sandboxes=read("MAX_SANDBOXES", _count(0, 1_000_000), "0"),
        )


class _Reader:
    """Looks a variable up and puts its name and value into the complaint."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    def __call__(self, name: str, parse: Callable[[str], T], default: str | None = None) -> T:
        text = self._environ.get(PREFIX + name, default)
        if text is None:
            raise SettingError(PREFIX + name, None, "it is required")
        try:
            return parse(text)
        except ValueError as error:
            raise SettingError(PREFIX + name, text, str(error)) from error

    def secret(self, name: str, parse: Callable[[str], T]) -> T:
        """As a call, but a bad value is not repeated in the complaint."""
        try:
            return self(name, parse)
        except SettingError as error:
            shown = None if error.value is None else "(hidden)"
            raise SettingError(error.variable, shown, error.rule) from None
