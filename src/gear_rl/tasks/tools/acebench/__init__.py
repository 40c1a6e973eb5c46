"""ACEBench, the English part: single and multiple calls, and the agent scenarios with their simulated apps.

The judges are ours, written after the benchmark's rules; a model's arguments are compared, never executed."""

from gear_rl.tasks.tools.acebench.task import AceBench

__all__ = ["AceBench"]
