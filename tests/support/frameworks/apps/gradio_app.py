"""Gradio: gradio_app.py PORT."""

import sys
from collections.abc import Iterator

import gradio


def answered(said: str) -> Iterator[str]:
    """The answer comes through a queue; the page is told by server-sent events."""
    yield "wait"
    yield f"got {said}"


gradio.Interface(answered, gradio.Textbox(label="said"), gradio.Textbox(label="answer")).launch(
    server_name="127.0.0.1", server_port=int(sys.argv[1])
)
