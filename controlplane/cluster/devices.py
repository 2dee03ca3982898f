"""GPUs, which few installations have for sandboxes (docs/gpu.md). Pure."""

from controlplane.errors import Problem
from controlplane.model import SandboxSpec


def refuse_gpu(spec: SandboxSpec, why: str) -> None:
    """Refuses a spec that asks for a GPU, where none can be given to a sandbox.

    Args:
        spec: what is asked for.
        why: what would give sandboxes some here.

    Raises:
        Problem: unsupported, naming the option.
    """
    if not spec.gpu:
        return
    detail = f"gpu {spec.gpu}: no sandbox gets a GPU here: {why} (docs/gpu.md)"
    raise Problem("unsupported", detail, option="gpu", most=0)
