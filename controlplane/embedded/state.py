"""The state directory: sockets, keys and the file for clients on this machine; locked by one ``rollbox up``."""

import fcntl
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from controlplane.embedded.up_error import UpError
from controlplane.settings import MAX_SOCKET_PATH_BYTES, SettingError

# The longest path of a socket below the state directory.
LONGEST_SOCKET: Final = "/sandboxes/sb-0123456789abcdef/agent.sock"
LISTED_FILES: Final = ("api.sock", "routes.sock", "ready/ready.sock", "podman.sock", "client.json", "oom")


@dataclass(frozen=True, slots=True)
class StateDir:
    """The paths in one state directory; see ``opened``."""

    path: Path

    @property
    def signing_key(self) -> Path:
        """Ed25519 private key, PEM, mode 0600; kept across restarts, so that tokens stay valid."""
        return self.path / "signing.key"

    @property
    def api_key(self) -> Path:
        """The owner's API key, mode 0600."""
        return self.path / "api.key"

    @property
    def settings_key(self) -> Path:
        """The gateway's key for digests of late settings, mode 0600; kept, so that creates can be repeated."""
        return self.path / "settings.key"

    @property
    def feed_key(self) -> Path:
        """What egress shows the control plane to get its feed, mode 0600."""
        return self.path / "feed.key"

    @property
    def client(self) -> Path:
        """URL and API key for the CLI and the SDK on this machine, mode 0600; exists while ``rollbox up`` is ready."""
        return self.path / "client.json"

    def keys(self) -> str:
        """Creates the keys that are missing; returns the API key."""
        if not self.signing_key.exists():
            write_private(self.signing_key, _new_signing_key())
        if not self.settings_key.exists():
            write_private(self.settings_key, secrets.token_bytes(32))
        if not self.feed_key.exists():
            write_private(self.feed_key, secrets.token_urlsafe(48).encode())
        if not self.api_key.exists():
            write_private(self.api_key, f"rbx_{secrets.token_urlsafe(24)}".encode())
        return self.api_key.read_text().strip()

    def write_client_settings(self, url: str, api_key: str) -> None:
        """Writes ``client.json``."""
        write_private(self.client, json.dumps({"url": url, "api_key": api_key}).encode())

    def sweep(self) -> None:
        """Removes sockets and ``client.json``; keys stay."""
        for name in LISTED_FILES:
            (self.path / name).unlink(missing_ok=True)


@contextmanager
def opened(path: Path) -> Iterator[StateDir]:
    """The state directory, created if it does not exist, and locked while the block runs.

    Raises:
        SettingError: its path is too long.
        UpError: it is not writable, or another ``rollbox up`` uses it.
    """
    check_length(path)
    try:
        for folder, mode in ((path, 0o700), (path / "sandboxes", 0o700), (path / "ready", 0o711)):
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(mode)
        lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise UpError(f"the state directory {path} cannot be used: {error}", "Give another --state-dir.") from error
    try:
        _lock(lock, path)
        yield StateDir(path)
    finally:
        os.close(lock)


def check_length(path: Path) -> None:
    """Refuses a directory whose sockets would have longer paths than the kernel allows.

    Raises:
        SettingError: it is too long.
    """
    most = MAX_SOCKET_PATH_BYTES - len(LONGEST_SOCKET)
    if len(os.fsencode(path)) > most:
        raise SettingError(
            "--state-dir", str(path), f"must have at most {most} bytes, for the paths of the sockets in it"
        )


def write_private(path: Path, content: bytes) -> None:
    """Replaces a file atomically, with mode 0600 from the start: never half-written, never readable by other users."""
    fresh = path.with_name(f".{path.name}.fresh")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    fresh.replace(path)


def _lock(descriptor: int, path: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(descriptor, 32, 0).decode().strip() or "unknown"
        detail = f"another rollbox up runs on {path} (process {holder})"
        raise UpError(detail, "Stop it, or give this one another --state-dir and --listen.") from error
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, str(os.getpid()).encode(), 0)


def _new_signing_key() -> bytes:
    return Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
