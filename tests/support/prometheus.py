"""Prometheus on this machine."""

from __future__ import annotations

import shutil


def why_no_prometheus() -> str | None:
    """Why its tool cannot run here, or None."""
    return None if shutil.which("promtool") else "promtool is not on PATH (setup/prometheus.sh installs it)"
