"""Run a program of open-instruct, unmodified, with the tool `rollbox_sandbox` in its table.

python -m rollbox_integrations.open_instruct open_instruct/grpo_fast.py --tools rollbox_sandbox ...
"""

import runpy
import sys
from pathlib import Path

from rollbox_integrations.open_instruct import register

if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("which program of open-instruct? For example open_instruct/grpo_fast.py, and its arguments")
    register()
    sys.argv = sys.argv[1:]
    sys.path[0] = str(Path(sys.argv[0]).parent)
    runpy.run_path(sys.argv[0], run_name="__main__")
