"""Processes of their own for whatever reads model output with third-party code: `client` asks, `sandbox` isolates.

`sandbox.py`, `syscalls.py`, `expressions.py` and the scripts they run import only the standard library and the judging package,
nothing of gear_rl: they are started by path.
"""
