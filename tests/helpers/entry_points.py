"""Packages of third parties, without installing any."""

from importlib.metadata import EntryPoint

from gear_rl import plugins


def register(monkeypatch, kind, *entries):
    """Entry points (name, value) of the group "gear_rl.KINDs", and no others."""
    group_of_kind = f"gear_rl.{kind}s"
    points = [EntryPoint(name, value, group_of_kind) for name, value in entries]
    monkeypatch.setattr(plugins, "entry_points", lambda group: points if group == group_of_kind else [])


def forbid(monkeypatch):
    def refuse(group):
        raise AssertionError("entry points were read")

    monkeypatch.setattr(plugins, "entry_points", refuse)
