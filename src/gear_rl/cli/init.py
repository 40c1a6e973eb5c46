"""`gear init`: a folder to start from, for one's own data or one's own environment. What it writes runs as it stands."""

from __future__ import annotations

import argparse
import json
from importlib.resources import files
from pathlib import Path

from gear_rl.errors import GearError
from gear_rl.files import write_bytes

KINDS = {"data": "problems with reference answers in a file", "environment": "episodes of several turns in a world of yours"}
MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
PLACE = "MODEL"
"""Stands in the files for the model's name in quotes."""
EPILOG = """examples:
  gear init my_project --kind data
  gear init my_project --kind environment --model Qwen/Qwen3-0.6B

The folder must not exist yet, or be empty: nothing is overwritten."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog, parser.formatter_class = EPILOG, argparse.RawDescriptionHelpFormatter
    parser.add_argument("folder", type=Path)
    kinds = "; ".join(f"{kind}: {what}" for kind, what in KINDS.items())
    parser.add_argument("--kind", choices=list(KINDS), required=True, help=kinds)
    parser.add_argument("--model", default=MODEL, help=f"a folder or hub name; default: {MODEL}")


def run(args: argparse.Namespace) -> int:
    folder: Path = args.folder
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise GearError(f"{folder} exists: give the name of a new folder.")
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for source in sorted(files("gear_rl.cli").joinpath("starting_folders", args.kind).iterdir(), key=lambda s: s.name):
        name = source.name.removesuffix(".txt")
        text = source.read_text(encoding="utf-8")
        if name in ("config.toml", "train.py"):
            text = text.replace(f"={PLACE},", f"={json.dumps(args.model)},").replace(
                f"model = {PLACE}", f"model = {json.dumps(args.model)}"
            )
        write_bytes(folder / name, text.encode())
        written.append(name)
    print(f"{folder}: {', '.join(written)}. Go there, and begin with README.md.")
    return 0
