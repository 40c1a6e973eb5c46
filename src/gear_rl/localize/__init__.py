"""Does credit find the mistake? Rollouts whose first wrong step is known, against any signal and any method.

sources   tasks.py (played now), records.py (a run's record), steps.py (files with step labels), arithmetic.py
labelled.py   what all of them make: rollouts, their signals, and where each went wrong
blame.py      a signal or a method → how strongly it suspects each token
measures.py   AUC, hit@1, mean reciprocal rank, distance, with bootstrap intervals
table.py      80 columns
"""
