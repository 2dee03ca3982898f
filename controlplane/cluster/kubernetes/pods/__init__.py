"""A sandbox's pod: how it is made, watched, judged dead, and removed."""
