"""A bounded storm over the whole lifecycle: clients, gateways, control planes and the store die; nothing may be lost.

Real control planes, gateways, Redis and SDK, all as processes; the cluster and its sidecars are played, since they are
the witness: what is judged is what can be told from outside. `invariants` is pure, `events` is what it reads.
"""
