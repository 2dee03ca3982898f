"""What `helm test` does: a sandbox, a command in it, and a look at its kernel, as a user would."""

import os
import sys

from rollbox.sync import Sandbox


def main() -> int:
    """The exit status: 0 when a sandbox came, ran a command in the promised kernel, and went."""
    required = os.environ["REQUIRED_KERNEL"]
    with Sandbox.create(os.environ["RUNTIME_IMAGE"], ttl=300) as sandbox:
        result = sandbox.exec("cat /proc/version", timeout=60)
        sys.stdout.write(f"{sandbox.id}: exit code {result.exit_code}, kernel {result.stdout.strip()}\n")
        isolated = required == "any" or required.lower() in result.stdout.lower()
    return 0 if result.exit_code == 0 and isolated else 1


if __name__ == "__main__":
    raise SystemExit(main())
