"""τ-bench: retail and airline; τ²-bench where its data allows."""

from gear_rl.tasks.tau.task import TauAirline, TauRetail
from gear_rl.tasks.tau.tau2 import Tau2Airline, Tau2Retail

__all__ = ["Tau2Airline", "Tau2Retail", "TauAirline", "TauRetail"]
