"""Rollouts on disk: the record of a run (JSON Lines, a rollout per line) and transcripts from elsewhere.

Writing, reading and checking only: every field of a file is untrusted. Nothing here runs a model or assigns credit. New
fields need a new version of the schema."""
