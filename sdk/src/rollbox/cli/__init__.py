"""The command line `rollbox`: the SDK for people and shell scripts.

Data goes to stdout, messages to stderr. Exit codes: 0 success, 1 a check of `doctor` failed; for errors by their fault
2 caller, 3 workload, 4 capacity, 5 platform. `exec` exits with the code of its command (124 deadline, 137 out of
memory, 130 Ctrl-C, 143 SIGTERM).

A start imports the module of its command; help imports those of all commands. So they import little at their top: no
asyncio, no rich, and of rollbox only what is pure (errors, labels, quantity). The functions that need more import it
when they run, and the names of types stand in a block for type checkers, except those of a command's parameters: Typer
evaluates them. `streaming` and `datagrams` are imported by such functions only, so their own imports are at the top.

Help takes under half of the processor time of a command that makes a call (`python -m tests.bench.cli_start`). Of the
latter two fifths are aiohttp, a fourth asyncio, a sixth Typer. docs/inside/sdk.md says what was tried.
"""

from rollbox.cli.app import app, main

__all__ = ["app", "main"]
