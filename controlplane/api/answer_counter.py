"""Counts HTTP answers by status class."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from controlplane.telemetry import Metrics


class AnswerCounter:
    """Middleware: counts the status of every answer in the metrics."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._metrics.answered(message["status"])
            await send(message)

        await self._app(scope, receive, counted if scope["type"] == "http" else send)
