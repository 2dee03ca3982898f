"""Where records are kept: a protocol with atomic steps, the store in memory, and the same with a journal of its ends.

May import model, errors, clock.
"""

from controlplane.store.journal import Journal
from controlplane.store.journaled import JournaledStore
from controlplane.store.memory import MemoryStore
from controlplane.store.protocol import Admission, Admitted, Full, Known, Store, Withdrawn

__all__ = ["Admission", "Admitted", "Full", "Journal", "JournaledStore", "Known", "MemoryStore", "Store", "Withdrawn"]
