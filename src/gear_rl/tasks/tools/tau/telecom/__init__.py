"""τ²-bench's telecom domain: a carrier, a phone, and cases that need both."""

from gear_rl.tasks.tools.tau.telecom.task import Tau2Telecom

__all__ = ["Tau2Telecom"]
