"""Finds rollbox's Rust binaries."""

import os
import shutil
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from controlplane.embedded.up_error import UpError


def find(name: str, environ: Mapping[str, str] = os.environ) -> Path | None:
    """The path of a binary (``gateway``, ``egress``, ``sidecar``, ``target``), or None.

    Looks in the environment variable ``ROLLBOX_NAME_BINARY``, beside this Python interpreter, and in PATH.
    """
    if given := environ.get(f"ROLLBOX_{name.upper()}_BINARY"):
        return Path(given).absolute()
    # Symbolic links are not resolved: in a virtual environment the interpreter is a link to one in another directory.
    beside = Path(sys.executable).parent / f"rollbox-{name}"
    if beside.is_file():
        return beside
    found = shutil.which(f"rollbox-{name}", path=environ.get("PATH"))
    return Path(found) if found else None


def required(name: str, environ: Mapping[str, str] = os.environ) -> Path:
    """As ``find``, but required.

    Raises:
        UpError: the binary was not found.
    """
    found = find(name, environ)
    if found is None or not found.is_file():
        where = f"beside {sys.executable} or in PATH" if found is None else f"at {found}"
        raise UpError(f"there is no rollbox-{name} {where}", "Run `make ready`, or install the wheels again.")
    return found


def gateway_command(environ: Mapping[str, str] = os.environ) -> list[str]:
    """The command that starts the gateway: its binary, else the Python module ``rollbox_gateway`` that contains it.

    Raises:
        UpError: neither was found.
    """
    if find("gateway", environ) is None and find_spec("rollbox_gateway") is not None:
        return [sys.executable, "-c", "import rollbox_gateway; raise SystemExit(rollbox_gateway.serve())"]
    return [str(required("gateway", environ))]
