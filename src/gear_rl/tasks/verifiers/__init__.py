"""Environments of verifiers (PrimeIntellect) as tasks: their own rows, control flow, tools and rewards, our sampler."""
