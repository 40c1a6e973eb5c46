"""Scores of a model on a task.

`evaluate` plans jobs, has a player play them and summarises the judged samples, for `gear eval` and for training's before
and after. `estimates` are the scores, `intervals` their confidence intervals, `result_folder` the files, and `task_check`
tests a task's own judge. Nothing here trains, and nothing prints: that is the command line's business."""
