"""GEAR and its peers inside verl, on Ray: loaded by verl itself, no fork.

    export VERL_USE_EXTERNAL_MODULES=gear_rl.engines.verl
    python -m verl.trainer.main_ppo trainer.v1.trainer_mode=gear +gear.credit=gear …

verl imports this package in each of its processes, from its own `__init__`. That registers a trainer (`gear`), an engine
for the workers that hold the weights, and an agent loop for our tasks (`gear_task`). Without verl nothing is registered, so
that options and data can be used anywhere. `python -m gear_rl.engines.verl` takes the same options, sets the variable, and
checks everything before Ray starts.
"""

from __future__ import annotations

import sys

if "verl" in sys.modules:
    from gear_rl.engines.verl.registration import register

    register()
