"""`rollbox completion`: what a shell runs to complete commands and options."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from rollbox.cli import output
from rollbox.errors import InvalidArgument

VARIABLE = "_ROLLBOX_COMPLETE"
"""The variable by which a shell asks for completions."""

_SHELLS = ("bash", "zsh", "fish")


def completion(
    shell: Annotated[str, typer.Argument(metavar="bash|zsh|fish", help="For which shell.")],
) -> None:
    """Print what completes commands and options in a shell; it changes no file. For bash, in ~/.bashrc:
    eval "$(rollbox completion bash)".
    """
    from typer._completion_shared import get_completion_script

    if shell not in _SHELLS:
        output.fail(InvalidArgument(f"shell {shell!r} is not one of {', '.join(_SHELLS)}"))
    typer.echo(get_completion_script(prog_name="rollbox", complete_var=VARIABLE, shell=shell))


def prepare() -> None:
    """Let Typer answer, when it is a shell that asks."""
    if VARIABLE in os.environ:
        from typer._completion_classes import completion_init

        completion_init()
