"""A week of RL traffic on a thousand nodes in virtual time, by the planners that production calls."""
