"""What a sandbox's network reaches: tried from inside, compared with an unrestricted pod, and judged.

A NetworkPolicy is a wish: a cluster whose network plugin ignores it takes it all the same. ``ways`` says what is tried,
``attempts`` tries it (the standard library alone: it runs in the sandbox), ``verdict`` judges what both places saw. The
chart's hooks and ``rollbox doctor --cluster`` bring the two places. Nothing here knows Kubernetes.
"""
