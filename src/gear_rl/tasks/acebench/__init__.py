"""ACEBench, the English part."""

from gear_rl.tasks.acebench.task import AceBench

__all__ = ["AceBench"]
