"""ACEBench, the English part."""

from gear_rl.tasks.tools.acebench.task import AceBench

__all__ = ["AceBench"]
