"""The PNG and the SVG: the page's own figure view, drawn by a headless Chromium. One way of drawing, not two.

The page runs no script but its own (see page.py), the browser gets an empty profile, and nothing is fetched.
"""

from __future__ import annotations

import base64
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from gear_rl.errors import GearError

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge")
WIDTH, TALLEST = 1200, 8000
"""CSS pixels; the picture has twice as many."""
SECONDS = 120


def find_browser() -> str:
    """$CHROMIUM, or the first Chromium-like browser on the PATH."""
    named = os.environ.get("CHROMIUM")
    for name in [named] if named else BROWSERS:
        if found := shutil.which(name):
            return found
    if named:
        raise GearError(f"there is no program {named!r}, which $CHROMIUM names.")
    raise GearError(
        "a picture is drawn by a browser, and there is none: install Chromium or Google Chrome (Debian, Ubuntu: "
        "apt install chromium), or name one in $CHROMIUM. The HTML page needs none."
    )


def draw(page: bytes, kind: str) -> bytes:
    """The figure view of `page` as "png" or "svg", as tall as its content."""
    with tempfile.TemporaryDirectory(prefix="gear-report-") as folder:
        (Path(folder) / "page.html").write_bytes(page)
        dom = _browse(folder, kind, "--dump-dom", f"--window-size={WIDTH},{TALLEST}")
        height = re.search(rb'<html[^>]* data-height="(\d{1,6})"', dom)
        if height is None:
            raise GearError("the browser did not draw the page. Open the HTML in it to see why.")
        if kind == "svg":
            text = re.search(rb'<html[^>]* data-svg="([A-Za-z0-9+/=]+)"', dom)
            if text is None:
                raise GearError("the browser made no picture.")
            return base64.b64decode(text[1]) + b"\n"
        picture = Path(folder) / "figure.png"
        size = f"--window-size={WIDTH},{min(TALLEST, max(200, int(height[1])))}"
        _browse(folder, kind, f"--screenshot={picture}", size, "--force-device-scale-factor=2")
        if not picture.exists():
            raise GearError("the browser made no picture.")
        return picture.read_bytes()


def _browse(folder: str, kind: str, *flags: str) -> bytes:
    quiet = ["--headless=new", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]
    quiet += ["--disable-component-update", "--disable-quic", "--hide-scrollbars", "--mute-audio"]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        quiet.append("--no-sandbox")  # Chromium refuses to run as root with it
    command = [find_browser(), *quiet, f"--user-data-dir={folder}/profile", "--virtual-time-budget=10000", *flags]
    try:
        done = subprocess.run([*command, f"file://{folder}/page.html#figure-{kind}"], capture_output=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        raise GearError(f"{command[0]} did not finish within {SECONDS} seconds.") from None
    except OSError as error:
        raise GearError(f"{command[0]} could not be run: {error.strerror}.") from None
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["no message"]
        raise GearError(f"{command[0]} failed: {last[0][:200]}")
    return done.stdout
