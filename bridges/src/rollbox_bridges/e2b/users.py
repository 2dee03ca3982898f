"""Users: which one a call is made as, and the names of those that own files."""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as NotBase64

from aiohttp import web

from rollbox import Files, SandboxError
from rollbox_bridges.connect.codes import ConnectError

_MOST_BYTES = 2**20


def user_of(request: web.Request) -> str | None:
    """The user that a call is made as: the name in its basic credentials; None: that of the sandbox.

    Raises:
        ConnectError: they are malformed.
    """
    text = request.headers.get("Authorization", "")
    if not text.lower().startswith("basic "):
        return None
    try:
        name = b64decode(text[6:], validate=True).decode().partition(":")[0]
    except (NotBase64, UnicodeDecodeError) as error:
        raise ConnectError("unauthenticated", "the basic credentials are not base64 of a user's name") from error
    return name or None


class Names:
    """The names of users and groups in a sandbox, as its files tell them.

    Args:
        files: of the sandbox.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self._known: dict[str, dict[int, str]] = {"/etc/passwd": {}, "/etc/group": {}}

    async def user(self, number: int) -> str:
        """The name of a user, or the number where there is none."""
        return await self._name("/etc/passwd", number)

    async def group(self, number: int) -> str:
        """The name of a group, or the number where there is none."""
        return await self._name("/etc/group", number)

    async def _name(self, path: str, number: int) -> str:
        if number not in self._known[path]:
            names = await self._read(path)
            # One that has no name is not looked up again for each file.
            self._known[path] = {number: str(number), **names}
        return self._known[path][number]

    async def _read(self, path: str) -> dict[int, str]:
        try:
            text = (await self._files.read(path, length=_MOST_BYTES)).decode("utf-8", "replace")
        except SandboxError:
            return {}
        fields = [line.split(":") for line in text.splitlines()]
        return {
            int(one[2]): one[0] for one in reversed(fields) if len(one) > 2 and one[2].isascii() and one[2].isdigit()
        }
