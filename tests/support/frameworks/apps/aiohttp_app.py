"""aiohttp: aiohttp_app.py PORT."""

import asyncio
import hashlib
import sys

from aiohttp import web

GO = asyncio.Event()


async def form(request: web.Request) -> web.Response:
    return web.Response(text='<form method="post" action="send"></form>', content_type="text/html")


async def send(request: web.Request) -> web.Response:
    done = web.HTTPSeeOther(str(request.url.join(request.app.router["done"].url_for())))
    done.set_cookie("said", str((await request.post())["said"]), secure=True, httponly=True, samesite="None")
    raise done


async def done(request: web.Request) -> web.Response:
    return web.Response(text=f"{request.cookies['said']} at {request.path}")


async def slash(request: web.Request) -> web.Response:
    return web.Response(text="slash")


async def upload(request: web.Request) -> web.Response:
    sent = (await request.post())["file"]
    assert isinstance(sent, web.FileField)
    return web.Response(text=f"{sent.filename} {hashlib.sha256(sent.file.read()).hexdigest()}")


async def empty(request: web.Request) -> web.Response:
    GO.set()
    return web.Response(text=str(len(await request.read())))


async def events(request: web.Request) -> web.StreamResponse:
    answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await answer.prepare(request)
    await answer.write(b"data: first\n\n")
    await GO.wait()
    GO.clear()
    await answer.write(b"data: second\n\n")
    return answer


async def echo(request: web.Request) -> web.WebSocketResponse:
    socket = web.WebSocketResponse()
    await socket.prepare(request)
    await socket.send_str(request.headers["Origin"])
    await socket.send_str(await socket.receive_str())
    await socket.close()
    return socket


if __name__ == "__main__":
    app = web.Application(middlewares=[web.normalize_path_middleware()], client_max_size=1 << 24)
    app.router.add_get("/", form)
    app.router.add_post("/send", send)
    app.router.add_get("/done", done, name="done")
    app.router.add_get("/slash/", slash)
    app.router.add_post("/upload", upload)
    app.router.add_post("/empty", empty)
    app.router.add_get("/events", events)
    app.router.add_get("/ws", echo)
    web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), print=None)
