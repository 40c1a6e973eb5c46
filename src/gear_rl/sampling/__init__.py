"""Rollouts by our own sampler, for evaluation and for tasks with an environment of their own.

`play` runs episodes in batches, `decoding` and `graph_decoding` hold the key-value cache, `players` turn jobs into judged
samples, and `sampler` keeps the 16-bit copy of a policy in training. Nothing here computes scores, signals or credit, and
nothing writes files. Engines that sample for themselves do not need this package."""
