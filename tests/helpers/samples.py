"""Shared by several test modules."""

from __future__ import annotations


def sample(id, k=0, success=True, category="all", **more):
    return {
        "id": id, "k": k, "how": "sampled", "success": success, "reward": float(success), "category": category,
        "channels": {"x": 1.0}, "malformed": 0, "cut_off": False, "tokens": 5, "trivially_passable": False, **more,
    }  # fmt: skip
