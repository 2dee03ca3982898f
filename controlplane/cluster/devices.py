"""GPUs, which few installations have for sandboxes (docs/gpu.md). Pure."""

from controlplane.errors import Problem
from controlplane.model import SandboxSpec


def refuse_gpu(spec: SandboxSpec, why: str = "") -> None:
    """Refuses a spec that asks for a GPU, where none can be given to a sandbox.

    A device that is given to the user's container alone is of no use to a command: commands run in the sidecar's
    container, and gVisor and control groups open devices by the container of the process. Such a sandbox would hold a
    device, and find none.

    Args:
        spec: what is asked for.
        why: why there is none here; empty: since both containers of a sandbox would need the device.

    Raises:
        Problem: unsupported, naming the option.
    """
    if not spec.gpu:
        return
    both = (
        "a device is opened only for processes of the container that it was given to, and commands run in another one"
    )
    detail = f"gpu {spec.gpu}: no sandbox gets a GPU here: {why or both} (docs/gpu.md)"
    raise Problem("unsupported", detail, option="gpu", most=0)
