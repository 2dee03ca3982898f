"""FastAPI on uvicorn: uvicorn --proxy-headers fastapi_app:app."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import FastAPI, Form, Request, Response, UploadFile, WebSocket
from fastapi.responses import HTMLResponse, PlainTextResponse, RedirectResponse, StreamingResponse
from starlette.middleware.sessions import SessionMiddleware

app = FastAPI()
app.add_middleware(SessionMiddleware, secret_key="of tests", https_only=True)
GO = asyncio.Event()


@app.get("/")
async def form() -> Response:
    return HTMLResponse('<form method="post" action="send"></form>')


@app.post("/send")
async def send(request: Request, said: Annotated[str, Form()]) -> Response:
    request.session["said"] = said
    return RedirectResponse(request.url_for("done"), 303)


@app.get("/done")
async def done(request: Request) -> Response:
    return PlainTextResponse(f"{request.session['said']} at {request.url.path}")


@app.get("/slash/")
async def slash() -> Response:
    return PlainTextResponse("slash")


@app.post("/upload")
async def upload(file: UploadFile) -> Response:
    return PlainTextResponse(f"{file.filename} {hashlib.sha256(await file.read()).hexdigest()}")


@app.post("/empty")
async def empty(request: Request) -> Response:
    GO.set()
    return PlainTextResponse(str(len(await request.body())))


@app.get("/events")
async def events() -> Response:
    async def told() -> AsyncIterator[str]:
        yield "data: first\n\n"
        await GO.wait()
        GO.clear()
        yield "data: second\n\n"

    return StreamingResponse(told(), media_type="text/event-stream")


@app.websocket("/ws")
async def echo(socket: WebSocket) -> None:
    await socket.accept()
    await socket.send_text(socket.headers["origin"])
    await socket.send_text(await socket.receive_text())
    await socket.close()
