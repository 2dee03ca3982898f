"""A control plane with a played cluster, in which some parts are the library's.

ROLLBOX_BENCH_LIBRARY=PART,PART python -m tests.bench.ab.plane
"""

from __future__ import annotations

import os

import controlplane.__main__ as program
from controlplane.api import serve
from tests.bench.ab.ways import WAYS
from tests.bench.lifecycle.plane import played_cluster

if __name__ == "__main__":
    for part in filter(None, os.environ.get("ROLLBOX_BENCH_LIBRARY", "").split(",")):
        WAYS[part]()
    vars(serve)["opened_cluster"] = played_cluster
    raise SystemExit(program.main())
