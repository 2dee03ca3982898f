"""The command line `rollbox`: the SDK for people and shell scripts.

Data goes to stdout, talk to stderr. Exit codes: 0 done, 1 a check of `doctor` failed, 2 caller, 3 workload, 4 capacity,
5 platform; `exec` exits as its command did (124 deadline, 137 out of memory, 130 Ctrl-C, 143 SIGTERM).
"""

from rollbox.cli.app import app, main

__all__ = ["app", "main"]
