"""Where records are kept: a protocol with atomic steps, and the store in memory. May import model, errors, clock."""

from controlplane.store.memory import MemoryStore
from controlplane.store.protocol import Admission, Admitted, Full, Known, Store, Withdrawn

__all__ = ["Admission", "Admitted", "Full", "Known", "MemoryStore", "Store", "Withdrawn"]
