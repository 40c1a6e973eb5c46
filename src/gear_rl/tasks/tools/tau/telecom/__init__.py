"""τ²-bench's telecom domain: the agent's tools change the carrier, the user's tools change the phone, and a case is
solved when both are in the right state. What the domains share is in `tau`."""

from gear_rl.tasks.tools.tau.telecom.task import Tau2Telecom

__all__ = ["Tau2Telecom"]
