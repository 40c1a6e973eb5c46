"""τ-bench: retail and airline; τ²-bench where its data allows."""

from gear_rl.tasks.tools.tau.task import TauAirline, TauRetail
from gear_rl.tasks.tools.tau.tau2 import Tau2Airline, Tau2Retail
from gear_rl.tasks.tools.tau.telecom import Tau2Telecom

__all__ = ["Tau2Airline", "Tau2Retail", "Tau2Telecom", "TauAirline", "TauRetail"]
