"""Processes for judges that must not run in ours.

Third-party judges may hang, crash or run out of memory on a model's answer. Here are the worker and its client, with time
limits and restarts. Nothing here knows a particular benchmark."""
