"""Completion in shells: of `odradek` and of Kafka's tools, names and flags.

    eval "$(odradek completion bash)"            bash, in ~/.bashrc
    eval "$(odradek completion zsh)"             zsh, in ~/.zshrc
    odradek completion fish | source             fish, in ~/.config/fish/config.fish

The shell asks `odradek` for the candidates, by click's protocol; `kafka-topics` is completed as
`odradek topics`. For this a tool is presented to click as a command with the tool's flags
(`completed`); it is never run through it.
"""

import importlib
import sys
from typing import Final

import click

from odradek.cli.kafka.support.flags import NONE, Parser
from odradek.cli.kafka.tool import TOOLS, script_name

SHELLS: Final = ("bash", "zsh", "fish")

_BASH: Final = """
_odradek_tool() {{
    local IFS=$'\\n' line type value
    local words="odradek ${{COMP_WORDS[0]##*/}} ${{COMP_WORDS[*]:1}}"
    words="${{words/odradek kafka-/odradek }}"
    for line in $(env COMP_WORDS="$words" COMP_CWORD=$((COMP_CWORD + 1)) \\
            _ODRADEK_COMPLETE=bash_complete odradek); do
        IFS=',' read type value <<< "$line"
        case $type in
            dir) COMPREPLY=(); compopt -o dirnames ;;
            file) COMPREPLY=(); compopt -o default ;;
            plain) COMPREPLY+=("$value") ;;
        esac
    done
}}
complete -o nosort -o default -F _odradek_tool {tools}
"""
_ZSH: Final = """
_odradek_tool() {{
    local -a completions found
    local tool=${{words[1]:t}}
    found=("${{(@f)$(env COMP_WORDS="odradek ${{tool#kafka-}} ${{words[2,-1]}}" \\
        COMP_CWORD=$CURRENT _ODRADEK_COMPLETE=zsh_complete odradek)}}")
    for kind key help in ${{found}}; do
        case $kind in
            plain)
                if [[ $help == _ ]]; then
                    completions+=("$key")
                else
                    completions+=("${{key//:/\\\\:}}:$help")
                fi ;;
            file) _path_files -f ;;
            dir) _path_files -/ ;;
        esac
    done
    [[ -n $completions ]] && _describe -V unsorted completions -U
}}
compdef _odradek_tool {tools}
"""
_FISH: Final = """
function _odradek_tool
    set -l words (commandline -cp)
    set -l words (string replace -r '^\\\\S*?(kafka-)?([a-z0-9-]+)' 'odradek $2' -- $words)
    set -lx COMP_WORDS "$words"
    set -lx COMP_CWORD (commandline -t)
    for line in (env _ODRADEK_COMPLETE=fish_complete odradek)
        set -l parts (string split -m1 ',' -- $line)
        switch $parts[1]
            case dir
                __fish_complete_directories $parts[2]
            case file
                __fish_complete_path $parts[2]
            case plain
                echo $parts[2]
        end
    end
end
for tool in {tools}
    complete --no-files --command $tool --arguments '(_odradek_tool)'
end
"""
_TEMPLATES: Final = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


@click.command
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the shell code that completes names and flags of `odradek` and Kafka's tools."""
    from click.shell_completion import get_completion_class  # noqa: PLC0415 - for this command only

    made = get_completion_class(shell)
    assert made is not None, shell
    print(
        made(
            click.get_current_context().find_root().command, {}, "odradek", "_ODRADEK_COMPLETE"
        ).source()
    )
    tools = " ".join(map(script_name, TOOLS))
    sys.stdout.write(_TEMPLATES[shell].format(tools=tools))


def completed(tool: str) -> click.Command:
    """A tool as a click command that has its flags and cannot be run."""
    line = getattr(importlib.import_module(TOOLS[tool].module), "command_line", None)
    return _command(tool, line() if line is not None else Parser(""))


def _command(name: str, parser: Parser) -> click.Command:
    options: list[click.Parameter] = [
        _option(f"--{name}", option.argument != NONE, option.help)
        for option in parser.options
        for name in option.names
        if len(name) > 1
    ]
    if parser.verbs:
        commands = {verb: _command(verb, line) for verb, line in parser.verbs.items()}
        return click.Group(name, commands, params=options, add_help_option=False)
    settings = {"ignore_unknown_options": True}
    return click.Command(name, params=options, add_help_option=False, context_settings=settings)


def _option(flag: str, has_value: bool, text: str) -> click.Option:
    kind = click.Path() if has_value and "file" in flag else None
    name = flag.lstrip("-").replace(".", "_").replace("-", "_")
    return click.Option(
        [flag, name], is_flag=not has_value, multiple=has_value, help=text, type=kind
    )
