"""The files by which a sandbox's programs know names: theirs, and nothing of the machine.

Engines make them of the machine's own (its hosts, its resolver and search domains), and Podman adds the machine's
address. So each sandbox has its own, mounted in their place.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

# The relay of the sidecar answers there, at once, where there is one; nothing else does.
_RESOLVER: Final = "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n"


def binds(folder: Path) -> Iterator[str]:
    """The mounts of an engine's create body, of the files in ``folder``."""
    return (f"{folder / name}:/etc/{name}" for name in ("hostname", "hosts", "resolv.conf"))


def write(folder: Path, sandbox_id: str) -> None:
    """Writes a sandbox's files. Commands of the sandbox may change them, as they may on any machine.

    Raises:
        OSError: no room, or a folder that cannot be written.
    """
    folder.mkdir(mode=0o755, exist_ok=True)
    names = (("127.0.0.1", "localhost"), ("::1", "localhost ip6-localhost ip6-loopback"), ("127.0.0.1", sandbox_id))
    contents = {
        "hostname": f"{sandbox_id}\n",
        "hosts": "".join(f"{address}\t{name}\n" for address, name in names),
        "resolv.conf": _RESOLVER,
    }
    for name, content in contents.items():
        (folder / name).write_text(content)
        # Whatever the mask of this process is: programs of every user read them.
        (folder / name).chmod(0o644)
