"""ConsoleViews, from inside a sandbox, at what a node or a machine decides about programs: `rollbox doctor`.

`program` runs in the sandbox, with the standard library alone; `judged` says what that means, and is pure; `sandboxed`
creates the sandbox. On a cluster the doctor has a pod run `python -m rollbox.program_check`.
"""

from rollbox.program_check.sandboxed import check

__all__ = ["check"]
