"""Have `rollbox doctor --cluster` look at the real cluster, well and with each fault; build/alerts/doctor.txt.

python -m tests.observability.examined             well, and all faults
python -m tests.observability.examined NAME...     well, and these

Exits with 1 when something is missing or absent where all is well, or when a fault is not named by its check with what
to do.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.observability.examined.faults import FAULTS
from tests.observability.firing.site import Site, opened
from tests.support.command_line import rollbox
from tests.support.installed import ROOT, kubeconfig

RECORD = ROOT / "build/alerts/doctor.txt"


async def looked(site: Site) -> tuple[int, list[dict[str, Any]]]:
    """The exit status of the doctor, and its checks."""
    where = ("--cluster", "--kubeconfig", str(kubeconfig()), "--release", site.stack.release)
    status, out, err = await rollbox(site.stack, "doctor", *where, "--json")
    if not out:
        raise RuntimeError(err)
    checks: list[dict[str, Any]] = json.loads(out)["checks"]
    return status, checks


def written(checks: list[dict[str, Any]]) -> str:
    """Checks as the doctor prints them."""
    wide = max(len(one["name"]) for one in checks)
    lines = []
    for one in checks:
        mark = "ok" if one["ok"] else "missing" if one["needed"] else "absent"
        lines.append(f"{mark:<7}  {one['name']:<{wide}}  {one['detail']}")
        if one["fix"] and not one["ok"]:
            lines.append(f"{'':<{wide + 11}}-> {one['fix']}")
    return "\n".join(lines)


async def _all(names: list[str]) -> bool:
    parts: list[str] = []
    with tempfile.TemporaryDirectory(prefix="rollbox-doctor-") as folder:
        async with opened(Path(folder)) as site:
            status, checks = await looked(site)
            # Nothing is absent either: else a fault could not be told from how it is anyway.
            good = status == 0 and all(one["ok"] for one in checks)
            parts.append(f"# all is well: exit status {status}\n{written(checks)}")
            print(parts[-1], flush=True)
            for name in names:
                fault = FAULTS[name]
                async with fault.inject(site):
                    status, checks = await looked(site)
                wrong = [one for one in checks if not one["ok"]]
                named = [one for one in wrong if one["name"].startswith(fault.check) and one["fix"]]
                good = good and status == fault.status and bool(named)
                said = written(wrong) if wrong else "nothing is missing"
                parts.append(f"# {fault.words}: exit status {status}\n{said}")
                print(parts[-1], flush=True)
                RECORD.parent.mkdir(parents=True, exist_ok=True)
                RECORD.write_text("\n\n".join([*parts, ""]))
    return good


def main(words: list[str]) -> int:
    """ConsoleViews; the exit code."""
    if unknown := set(words) - FAULTS.keys():
        print(f"no faults: {', '.join(sorted(unknown))}; there are {', '.join(FAULTS)}", file=sys.stderr)
        return 2
    return 0 if asyncio.run(_all(words or list(FAULTS))) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
