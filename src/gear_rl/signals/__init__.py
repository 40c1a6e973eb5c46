"""What a method needs to know about each token or rollout, from scoring, from the task's verdicts or from hints.

The collector asks each source for what the method names and returns tensors. Running models for a signal is the business
of `scoring`, and what to do with a signal that of `methods`. Nothing here imports a training framework or writes files."""
