"""Grading in a fresh sandbox."""

from rollbox.grading.options import GradeOptions
from rollbox.grading.rewards import HARBOR_REWARD_FILES
from rollbox.grading.tree import Taken
from rollbox.grading.verdict import GradeTimes, Verdict

__all__ = ["HARBOR_REWARD_FILES", "GradeOptions", "GradeTimes", "Taken", "Verdict"]
