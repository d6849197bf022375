"""A click group that suggests similar names for an unknown subcommand."""

import click


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
