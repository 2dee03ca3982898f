"""A package index whose packages have dates, run beside `outside`: two versions of one package, and what was asked for.

python dated_index.py ADDRESS
"""

from __future__ import annotations

import asyncio
import collections
import hashlib
import io
import sys
import zipfile
from typing import Any, Final

from aiohttp import web

PORT: Final = 8004
# Version -> when it was published.
RELEASES: Final = {"1.0": "2020-01-01T00:00:00Z", "2.0": "2025-01-01T00:00:00Z"}
PAGE: Final = "application/vnd.pypi.simple.v1+json"


def _wheel(version: str) -> bytes:
    about = f"tiny-{version}.dist-info"
    inside = {
        "tiny.py": f"VERSION = '{version}'\n",
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: tiny\nVersion: {version}\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{about}/RECORD": f"tiny.py,,\n{about}/METADATA,,\n{about}/WHEEL,,\n",
    }
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as wheel:
        for name, text in inside.items():
            wheel.writestr(zipfile.ZipInfo(name), text)
    return packed.getvalue()


WHEELS: Final = {f"tiny-{version}-py3-none-any.whl": _wheel(version) for version in RELEASES}


def project() -> dict[str, Any]:
    """The package as PyPI tells of it (PEP 691 and 700)."""

    def file(name: str) -> dict[str, Any]:
        version = name.split("-")[1]
        return {
            "filename": name,
            "url": f"https://files.pythonhosted.org/packages/{name}",
            "hashes": {"sha256": hashlib.sha256(WHEELS[name]).hexdigest()},
            "upload-time": RELEASES[version],
        }

    return {"meta": {"api-version": "1.1"}, "name": "tiny", "versions": [*RELEASES], "files": [*map(file, WHEELS)]}


async def main(address: str) -> None:
    """Serves until it is ended."""
    asked: collections.Counter[str] = collections.Counter()

    async def answer(request: web.Request) -> web.Response:
        if request.path == "/asked":
            return web.json_response(asked)
        asked[request.path] += 1
        if request.path == "/pypi/simple/tiny/":
            return web.json_response(project(), content_type=PAGE)
        name = request.path.removeprefix("/files/packages/")
        return web.Response(body=WHEELS[name]) if name in WHEELS else web.Response(status=404)

    app = web.Application()
    app.add_routes([web.get("/{path:.*}", answer)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    # In a network namespace that is a test's own every port is free.
    where = (address, PORT)
    await web.TCPSite(runner, *where).start()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
