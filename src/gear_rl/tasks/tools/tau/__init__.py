"""τ-bench (retail, airline) and τ²-bench: databases, tools, simulated users, and rewards by the final database.

Data comes from the benchmarks' own files; none is copied here. The telecom domain is in `telecom`."""

from gear_rl.tasks.tools.tau.task import TauAirline, TauRetail
from gear_rl.tasks.tools.tau.tau2 import Tau2Airline, Tau2Retail
from gear_rl.tasks.tools.tau.telecom import Tau2Telecom

__all__ = ["Tau2Airline", "Tau2Retail", "Tau2Telecom", "TauAirline", "TauRetail"]
