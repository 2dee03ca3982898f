"""The command line `rollbox`: the SDK for people and shell scripts.

Data goes to stdout, messages to stderr. Exit codes: 0 success, 1 a check of `doctor` failed; for errors by their fault
2 caller, 3 workload, 4 capacity, 5 platform. `exec` exits with the code of its command (124 deadline, 137 out of
memory, 130 Ctrl-C, 143 SIGTERM).
"""

from rollbox.cli.app import app, main

__all__ = ["app", "main"]
