"""`gear completion`: the script that lets a shell complete commands, options, methods and tasks."""

from __future__ import annotations

import argparse
import shlex
from typing import Any

SHELLS = ("bash", "zsh", "fish")
EPILOG = """Put it where your shell reads it:
  gear completion bash > ~/.local/share/bash-completion/completions/gear
  gear completion zsh > ~/.gear.zsh         and in ~/.zshrc:   . ~/.gear.zsh
  gear completion fish > ~/.config/fish/completions/gear.fish

It is written for what is installed now: run it again after an upgrade."""
BASH = """_gear() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" command="${{COMP_WORDS[1]}}" words
    case "$command $before" in
{values}
        *) case "$command" in
{options}
        esac ;;
    esac
    [ "$COMP_CWORD" -eq 1 ] && words={commands}
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _gear gear
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog, parser.formatter_class = EPILOG, argparse.RawDescriptionHelpFormatter
    parser.add_argument("shell", choices=SHELLS)


def run(args: argparse.Namespace) -> int:
    from gear_rl.cli.main import COMMANDS, build_parser
    from gear_rl.methods import all_methods
    from gear_rl.tasks import all_tasks

    parser = build_parser(list(COMMANDS))
    (commands,) = (action.choices for action in parser._actions if action.dest == "command")
    assert isinstance(commands, dict)
    named = {"--credit": list(all_methods()), "--task": list(all_tasks())}
    print(_fish(commands, COMMANDS, named) if args.shell == "fish" else _bash(commands, named, args.shell == "zsh"), end="")
    return 0


def _options(parser: Any) -> dict[str, list[str]]:
    """Each long option, and the values it takes where these are few; "" for a command's own argument."""
    found = {
        option: [str(choice) for choice in action.choices or ()]
        for action in parser._actions
        for option in action.option_strings or [""]
        if option.startswith("--") or (not option and action.choices)
    }
    return found


def _bash(commands: dict[str, Any], named: dict[str, list[str]], in_zsh: bool) -> str:
    values, options = [], []
    for name, parser in commands.items():
        known = _options(parser)
        for option, choices in known.items():
            if option and (words := choices or named.get(option)):
                values.append(f"        {shlex.quote(f'{name} {option}')}) words={shlex.quote(' '.join(words))} ;;")
        own = [*known.pop("", []), *known]
        options.append(f"            {name}) words={shlex.quote(' '.join(own))} ;;")
    script = BASH.format(values="\n".join(values), options="\n".join(options), commands=shlex.quote(" ".join(commands)))
    return ("autoload -U +X bashcompinit && bashcompinit\n" if in_zsh else "") + script


def _fish(commands: dict[str, Any], summaries: dict[str, str], named: dict[str, list[str]]) -> str:
    lines = []
    for name, parser in commands.items():
        lines.append(f"complete -c gear -n __fish_use_subcommand -a {name} -d {shlex.quote(summaries[name])}")
        for option, choices in _options(parser).items():
            words = choices or named.get(option)
            given = f" -x -a {shlex.quote(' '.join(words))}" if words else ""
            flag = f" -l {option[2:]}" if option else ""
            lines.append(f"complete -c gear -n '__fish_seen_subcommand_from {name}'{flag}{given}")
    return "\n".join(lines) + "\n"
