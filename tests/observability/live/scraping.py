"""A real Prometheus that scrapes the pods of a release as their annotations say.

Debian's build has no discovery in Kubernetes, so a file tells it what the annotations say, anew every two seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from tests.support.stack import free_port
from tests.support.waiting import until

EVERY = "3s"
DISCOVERY = "tests.observability.live.discovery"


@dataclass(frozen=True)
class Series:
    """One series of a range: its labels, and its values by time in seconds."""

    labels: Mapping[str, str]
    values: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Prometheus:
    """One that runs."""

    url: str

    async def targets(self) -> list[dict[str, Any]]:
        """What it scrapes."""
        return list((await self._get("targets", state="active"))["activeTargets"])

    async def range(self, query: str, begin_s: float, end_s: float, step_s: float) -> list[Series]:
        """The series of a query over a time."""
        found = await self._get("query_range", query=query, start=str(begin_s), end=str(end_s), step=str(step_s))
        return [
            Series(one["metric"], [(float(at_s), float(value)) for at_s, value in one["values"]])
            for one in found["result"]
        ]

    async def alerts(self) -> list[dict[str, Any]]:
        """The alerts that are pending or firing."""
        return list((await self._get("alerts"))["alerts"])

    async def _get(self, what: str, **query: str) -> Any:
        async with aiohttp.request("GET", f"{self.url}/api/v1/{what}", params=query) as answer:
            body = await answer.json()
            assert body["status"] == "success", body
            return body["data"]


def _settings(targets: Path, rules: Path | None, every: str) -> Mapping[str, Any]:
    files = {"files": [str(targets)], "refresh_interval": EVERY}
    return {
        "global": {"scrape_interval": every, "evaluation_interval": "1s"},
        "scrape_configs": [{"job_name": "pods", "file_sd_configs": [files]}],
        "rule_files": [str(rules)] if rules else [],
    }


@asynccontextmanager
async def scraping(
    namespace: str, folder: Path, rules: Path | None = None, every: str = EVERY
) -> AsyncIterator[Prometheus]:
    """It while the block runs, on loopback, with its data in the folder; with rules that it evaluates every second."""
    settings, targets, port = folder / "prometheus.yaml", folder / "targets.json", free_port()
    settings.write_text(yaml.safe_dump(_settings(targets, rules, every)))
    made = Prometheus(f"http://127.0.0.1:{port}")
    with (folder / "prometheus.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            "prometheus",
            f"--config.file={settings}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    # A process, since the loop of this fixture stands still while tests run.
    finding = await asyncio.create_subprocess_exec(sys.executable, "-m", DISCOVERY, namespace, str(targets))
    try:
        await until(lambda: _answers(made), 30)
        yield made
    finally:
        for one in (finding, process):
            with contextlib.suppress(ProcessLookupError):
                one.terminate()
            await one.wait()


async def _answers(made: Prometheus) -> bool:
    try:
        async with aiohttp.request("GET", f"{made.url}/-/ready") as answer:
            return answer.status == 200
    except aiohttp.ClientConnectionError:
        return False
