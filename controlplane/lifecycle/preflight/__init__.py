"""What a run needs against what there is, told before it begins: the arithmetic (pure) and the look at the facts."""

from controlplane.lifecycle.preflight.arithmetic import Blocker, Foresight, Need
from controlplane.lifecycle.preflight.survey import Surveyor

__all__ = ["Blocker", "Foresight", "Need", "Surveyor"]
