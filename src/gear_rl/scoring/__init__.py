"""From a model to signals: exact full-vocabulary divergence per token, and the head it goes through.

Importing this imports torch and nothing heavier; Triton is loaded by the first call that can use it.
"""

from gear_rl.scoring.backends.self_check import SelfCheck, self_check
from gear_rl.scoring.divergence import Divergence, token_divergence
from gear_rl.scoring.head import Head

__all__ = ["Divergence", "Head", "SelfCheck", "self_check", "token_divergence"]
