"""`gear train` and `gear warmstart` without the command line.

Configuration, the run folder with its checkpoints, progress, and the run itself, which is resumed exactly. What belongs to
one training framework is in `engines`. Nothing here defines a method, a signal or a task."""
