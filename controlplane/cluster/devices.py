"""GPUs, which no sandbox gets (docs/gpu.md). Pure."""

from controlplane.errors import Problem
from controlplane.model import SandboxSpec


def refuse_gpu(spec: SandboxSpec) -> None:
    """Refuses a spec that asks for a GPU, whatever the nodes have.

    A device that is given to the user's container is of no use to a command: commands run in the sidecar's container,
    and gVisor and control groups open devices by the container of the process. Such a sandbox would hold a device, and
    find none.

    Raises:
        Problem: unsupported, naming the option.
    """
    if not spec.gpu:
        return
    detail = (
        f"gpu {spec.gpu}: no sandbox gets a GPU yet: a device is opened only for processes of the container that it "
        "was given to, and commands run in another one (docs/gpu.md)"
    )
    raise Problem("unsupported", detail, option="gpu", most=0)
