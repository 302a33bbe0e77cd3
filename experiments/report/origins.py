"""Folders of other studies in what a study says of itself: what is kept or published tells their names alone.

A digest beside each says what was in it, so nothing is lost, and no file names a place on somebody's machine.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

_MADE_FROM = ("controls", "warm_start")  # parts of a configuration that name the folder of another study


def config_by_names(config: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON of a configuration, or of a manifest, whose folders are names."""
    parts = {part: {**config[part], "from": name} for part, (_, name) in _folders(config).items()}
    return {**config, **parts}


def command_by_names(command: str, config: Mapping[str, Any]) -> str:
    """The command of that configuration, whose folders are names."""
    for folder, name in _folders(config).values():
        command = command.replace(folder, name)
    return command


def _folders(config: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Part of the configuration -> its folder and the folder's name."""
    parts = {part: config[part]["from"] for part in _MADE_FROM if config.get(part)}
    return {part: (folder, Path(folder).name) for part, folder in parts.items()}
