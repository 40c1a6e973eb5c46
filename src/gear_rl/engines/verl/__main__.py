"""`python -m gear_rl.engines.verl OVERRIDES…`: verl's own `main_ppo`, with all checks before Ray starts.

What a user can fix is one line and exit code 2: another version of verl, an unknown option, an unsupported method, a
hint column that is not there, a Ray cluster that does not answer or has too few GPUs.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import socket
import sys
from pathlib import Path
from typing import Any

from gear_rl.engines.versions import check_version
from gear_rl.errors import GearError

MODULE = "gear_rl.engines.verl"
BAD_INPUT = 2
CLUSTER_ANSWERS = 5.0
"""Seconds to wait for a connection."""
TOO_FEW_GPUS = "Total available GPUs"
"""How verl begins to say so; tests/verl/test_contract.py checks it."""


def main(argv: list[str]) -> int:
    try:
        check_version("verl")
        modules = os.environ.get("VERL_USE_EXTERNAL_MODULES", "")
        if MODULE not in modules.split(","):
            os.environ["VERL_USE_EXTERNAL_MODULES"] = f"{modules},{MODULE}".strip(",")
        config = compose(argv)
        check(config)
        check_cluster(config)
        run(config)
    except GearError as error:
        print(f"error: {error}", file=sys.stderr)
        return BAD_INPUT
    return 0


def compose(overrides: list[str]) -> Any:
    """verl's configuration with `overrides`."""
    import hydra
    from hydra.errors import HydraException

    try:
        with hydra.initialize_config_dir(str(_configs()), version_base=None):
            return hydra.compose("ppo_trainer", overrides)
    except HydraException as error:
        said = " ".join(str(error).split())
        raise GearError(f"verl's configuration: {said} A new option needs a +, as in +gear.credit=gear.") from None


def _configs() -> Path:
    """verl's configuration files, found without importing verl, which takes long."""
    spec = importlib.util.find_spec("verl")
    if spec is None or spec.origin is None:
        raise GearError("the installed verl has no files: reinstall it.")
    return Path(spec.origin).parent / "trainer" / "config"


def check(config: Any) -> None:
    """All that can be known before a cluster is touched."""
    from gear_rl.engines.verl.refusals import refuse_method, refuse_settings
    from gear_rl.engines.verl.rows import check_data
    from gear_rl.engines.verl.settings import Settings

    settings = Settings.of(config)
    method = settings.make_method()
    refuse_method(method, settings)
    refuse_settings(config, method, settings)
    task = settings.make_task()
    check_data(_dataset(config.data.train_files), method, settings, task, config.data.train_batch_size)


def _dataset(files: Any) -> Any:
    import datasets

    datasets.disable_progress_bars()
    paths = [files] if isinstance(files, str) else list(files)
    for path in paths:
        if "://" not in path and not os.path.exists(os.path.expanduser(path)):
            raise GearError(f"data.train_files: there is no file {path}.")
    kind = "parquet" if paths[0].endswith(".parquet") else "json"
    return datasets.load_dataset(kind, data_files=[os.path.expanduser(path) for path in paths])["train"]


def check_cluster(config: Any) -> None:
    """A cluster that is named must answer: Ray itself would go on trying for minutes."""
    address = config.ray_kwargs.get("ray_init", {}).get("address") or os.environ.get("RAY_ADDRESS") or ""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdigit():
        return  # "auto", "local" or nothing: a cluster of this machine, which Ray finds or starts
    try:
        socket.create_connection((host, int(port)), CLUSTER_ANSWERS).close()
    except OSError as error:
        raise GearError(
            f"no Ray cluster answers at {address} ({error}). Start one (ray start --head), or unset RAY_ADDRESS and "
            "ray_kwargs.ray_init.address to start one here."
        ) from None


def run(config: Any) -> None:
    from ray.exceptions import RayActorError, RayTaskError
    from verl.trainer.main_ppo import main as verl_main

    try:
        verl_main.__wrapped__(config)  # without Hydra's own reading of the command line
    except (RayTaskError, RayActorError, ConnectionError) as error:
        cause = _innermost(error)
        if isinstance(cause, GearError):
            raise GearError(str(cause)) from None
        if isinstance(cause, ValueError) and str(cause).startswith(TOO_FEW_GPUS):
            asked = config.trainer.nnodes, config.trainer.n_gpus_per_node
            raise GearError(
                f"{cause} (trainer.nnodes={asked[0]} × trainer.n_gpus_per_node={asked[1]}). Lower these, or start more nodes "
                "(ray start --address=HEAD:PORT) first."
            ) from None
        if isinstance(cause, RayActorError):
            raise GearError(f"the Ray cluster, or a process of it, died: {_first_line(cause)} {_RESUME}") from None
        if isinstance(cause, ConnectionError):
            raise GearError(f"the Ray cluster does not answer: {_first_line(cause)} {_RESUME}") from None
        raise


def _innermost(error: BaseException) -> BaseException:
    """A worker's error comes through the trainer's process, wrapped once in each."""
    while (cause := getattr(error, "cause", None)) is not None:
        error = cause
    return error


_RESUME = "Run the same command again: it goes on from the last checkpoint (trainer.save_freq)."


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


if __name__ == "__main__":
    logging.getLogger("ray").setLevel(logging.ERROR)
    sys.exit(main(sys.argv[1:]))
