"""SWE-agent, unmodified, with `rollbox` among the types of its deployments; all arguments are SWE-agent's."""

from __future__ import annotations

from importlib import import_module

from rollbox_integrations.swe_rex import register


def main() -> None:
    """Run SWE-agent's command line.

    Raises:
        SystemExit: SWE-agent is not installed, or what it ends with.
    """
    register()
    try:
        sweagent = import_module("sweagent.run.run")
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("sweagent"):
            raise
        raise SystemExit("SWE-agent is not installed: https://swe-agent.com/latest/installation/source/") from error
    sweagent.main()


if __name__ == "__main__":
    main()
