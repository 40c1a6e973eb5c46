"""The arithmetic of credit: tensors in, tensors out.

Rollouts and their action tokens, turns, segments, baselines, weights, and the `Credit` that a method returns. Nothing here
runs a model, reads a file or knows a task, and a method's own rule belongs in `methods`. Imports errors only."""
