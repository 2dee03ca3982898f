"""Where the Rust programs of the product lie."""

import os
import shutil
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from controlplane.embedded.trouble import TroubleError


def find(name: str, environ: Mapping[str, str] = os.environ) -> Path | None:
    """A program by name (``gateway``, ``sidecar``, ``target``): by variable, beside this Python, or in PATH."""
    if given := environ.get(f"ROLLBOX_{name.upper()}_BINARY"):
        return Path(given).absolute()
    # Not resolved: in a virtual environment the interpreter is a link to one elsewhere.
    beside = Path(sys.executable).parent / f"rollbox-{name}"
    if beside.is_file():
        return beside
    found = shutil.which(f"rollbox-{name}", path=environ.get("PATH"))
    return Path(found) if found else None


def required(name: str, environ: Mapping[str, str] = os.environ) -> Path:
    """As ``find``.

    Raises:
        TroubleError: there is none.
    """
    found = find(name, environ)
    if found is None or not found.is_file():
        where = f"beside {sys.executable} or in PATH" if found is None else f"at {found}"
        raise TroubleError(f"there is no rollbox-{name} {where}", "Run `make build`, or install the wheels again.")
    return found


def gateway_command(environ: Mapping[str, str] = os.environ) -> list[str]:
    """What starts the gateway: its program, else the Python module that carries it.

    Raises:
        TroubleError: there is neither.
    """
    if find("gateway", environ) is None and find_spec("rollbox_gateway") is not None:
        return [sys.executable, "-c", "import rollbox_gateway; raise SystemExit(rollbox_gateway.serve())"]
    return [str(required("gateway", environ))]
