"""The indexes: files by name of the host, over TLS and without, and a repository as Git asks for it, by HTTP and SSH.

python server.py ADDRESS FOLDER
"""

from __future__ import annotations

import asyncio
import ssl
import sys
from pathlib import Path

from aiohttp import web

from tests.support.tools.hosts import FORGE
from tests.support.waiting import until

_SERVICE = "git-upload-pack"
FOLDER = web.AppKey("folder", Path)
# Its users log in as root, whose home is another one here: FOLDER of the user, FOLDER of the repository, ADDRESS.
_SSH = """
mount --bind "$1" /root
[ -e "$1/host" ] || dropbearkey -t ed25519 -f "$1/host" >/dev/null 2>&1
exec dropbear -F -s -r "$1/host" -p "$3:22" -P "$1/pid" -c "git upload-pack $2"
"""


async def _file(request: web.Request) -> web.StreamResponse:
    found = request.app[FOLDER] / "hosts" / request.host.partition(":")[0] / request.match_info["path"]
    found = found / "index.html" if found.is_dir() else found
    if not found.is_file():
        raise web.HTTPNotFound
    return web.FileResponse(found)


async def _git(request: web.Request, *words: str, given: bytes = b"") -> bytes:
    if request.host != FORGE:
        raise web.HTTPNotFound
    command = ("git", "upload-pack", "--stateless-rpc", *words, str(request.app[FOLDER] / "git" / "tiny.git"))
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={"PATH": "/usr/bin:/bin", "GIT_PROTOCOL": request.headers.get("Git-Protocol", "")},
    )
    return (await process.communicate(given))[0]


async def _refs(request: web.Request) -> web.Response:
    if request.query.get("service") != _SERVICE:
        raise web.HTTPForbidden
    said = await _git(request, "--advertise-refs")
    body = f"001e# service={_SERVICE}\n0000".encode() + said
    return web.Response(body=body, content_type=f"application/x-{_SERVICE}-advertisement")


async def _pack(request: web.Request) -> web.Response:
    said = await _git(request, given=await request.read())
    return web.Response(body=said, content_type=f"application/x-{_SERVICE}-result")


async def _ssh(address: str, folder: Path) -> None:
    alone = ("setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "sh", "-ec", _SSH, "sh")
    await asyncio.create_subprocess_exec(*alone, str(folder / "ssh"), str(folder / "git" / "tiny.git"), address)

    async def listens() -> bool:
        try:
            (await asyncio.open_connection(address, 22))[1].close()
        except OSError:
            return False
        return True

    await until(listens)


async def main(address: str, folder: Path) -> None:
    """Serves until it is ended."""
    app = web.Application()
    app[FOLDER] = folder
    app.add_routes(
        [
            web.get("/tiny/info/refs", _refs),
            web.post(f"/tiny/{_SERVICE}", _pack),
            web.get("/{path:.*}", _file),
        ]
    )
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(folder / "tls" / "tls.crt", folder / "tls" / "tls.key")
    # The address is of a network namespace of the tests' own, so no port is another's.
    for port, context in ((80, None), (443, tls)):
        await web.TCPSite(runner, address, port, ssl_context=context).start()
    await _ssh(address, folder)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
