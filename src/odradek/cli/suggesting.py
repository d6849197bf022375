"""Click groups and options: names like an unknown one are suggested, and help is not cut."""

from typing import Final

import click

# Below it two options share letters and not their meaning: --broker and --zookeeper have 0.63.
_LIKE: Final = 0.75


class SuggestingGroup(click.Group):
    """Refuses an unknown subcommand and names similar ones."""

    def known(self, ctx: click.Context) -> list[str]:
        """The names to suggest from."""
        return self.list_commands(ctx)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the subcommand.

        Raises:
            click.UsageError: there is no such subcommand.
        """
        name = args[0]
        is_option = name.startswith("-")
        if self.get_command(ctx, name) is None and not is_option and not ctx.resilient_parsing:
            from odradek.cli.near_names import suggestion  # noqa: PLC0415 - for mistakes only

            ctx.fail(f"No such command {name!r}{suggestion(name, self.known(ctx))}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of subcommands, each with its first sentence; click cuts it to one line."""
        commands = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        rows = [(name, _first_sentence(each)) for name, each in commands if each is not None]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def _first_sentence(command: click.Command) -> str:
    words = (command.help or "").split("\n\n", 1)[0].split()
    end = next((n for n, word in enumerate(words) if word.endswith(".")), len(words))
    return " ".join(words[: end + 1])


def suggesting_alike(error: click.NoSuchOption) -> click.NoSuchOption:
    """The error with those suggestions only that are nearly written like the unknown option."""
    from difflib import SequenceMatcher  # noqa: PLC0415 - for mistakes only

    name = error.option_name
    alike = [
        each
        for each in error.possibilities or ()
        if each.startswith(name) or SequenceMatcher(None, name, each).ratio() >= _LIKE
    ]
    return click.NoSuchOption(name, possibilities=alike, ctx=error.ctx)
