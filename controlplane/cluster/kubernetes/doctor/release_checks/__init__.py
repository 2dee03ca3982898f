"""``rollbox doctor --cluster`` on an installed release: its parts and versions, rights, names, limits and clocks."""

from controlplane.cluster.kubernetes.doctor.release_checks.releases import check

__all__ = ["check"]
