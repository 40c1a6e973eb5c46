"""Engines: the only place that imports a training framework. Each is a thin adapter onto the framework's own loss."""
