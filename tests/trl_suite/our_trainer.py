"""A plugin of pytest: TRL's own tests, with our trainer wherever they say `GRPOTrainer`. `make trl-suite` uses it.

CREDIT: the method; "trl" leaves TRL's trainer in place, to see which tests fail on their own.
"""

from __future__ import annotations

import os

import trl

from gear_rl.engines.trl import CreditGRPOTrainer

CREDIT = os.environ.get("CREDIT", "gear")


class OurTrainer(CreditGRPOTrainer):
    def __init__(self, *args, **kwargs):
        hint = (lambda row: "Think twice.") if CREDIT == "gear" else None  # their data has no reference answers
        super().__init__(*args, credit=CREDIT, hint=hint, **kwargs)


if CREDIT != "trl":
    trl.GRPOTrainer = OurTrainer
