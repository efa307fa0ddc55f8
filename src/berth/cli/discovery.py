"""Options of discovery, for the commands that look at a machine."""

import argparse

from berth.agent.discovery.settings import TABLE, DiscoverySettings, conflicts
from berth.cli.command import add_options, read_options
from berth.runtime.settings import SettingsError, gather


def add_discovery(command: argparse.ArgumentParser) -> None:
    command.add_argument("--config", metavar="FILE", help="TOML file with settings of discovery")
    add_options(command.add_argument_group("settings of discovery"), TABLE)


def read_discovery(arguments: argparse.Namespace) -> DiscoverySettings:
    """The settings of discovery, or SettingsError."""
    values, _ = gather(TABLE, arguments.config, flags=read_options(arguments, TABLE))
    settings = DiscoverySettings(**values)
    problem = conflicts(settings)
    if problem is not None:
        raise SettingsError(problem)
    return settings


def find_given(arguments: argparse.Namespace) -> str | None:
    """The first of the options of discovery that was given; None if none was."""
    if arguments.config is not None:
        return "--config"
    return next((setting.flag for setting in TABLE if setting.name in vars(arguments)), None)
