"""The one training engine: stages in, trained networks out."""

from crowdwise.engine.loop import Engine
from crowdwise.engine.problem import Problem
from crowdwise.engine.stage import Batch, Group, Stage, StageResult

__all__ = ["Batch", "Engine", "Group", "Problem", "Stage", "StageResult"]
