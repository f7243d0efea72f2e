"""A group of commands that are imported when they are called."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from typing import Any

import click

from undertow.errors import short


class LazyGroup(click.Group):
    """A click group over a table `command -> (module, one line for --help)`; only the command called is imported."""

    def __init__(self, *args: Any, verbs: Mapping[str, tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.verbs = verbs

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click does, but without a command the help is shown as it is, not as the text of an error."""
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help(), err=True)
            ctx.exit(2)
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.verbs)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.verbs:
            return None
        command = importlib.import_module(self.verbs[cmd_name][0]).command
        assert isinstance(command, click.Command)
        command.name = cmd_name  # in the modules each is called `command`; the reference shows this name
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, but a mistyped name gets suggestions."""
        given = args[0] if args else ""
        if given and not given.startswith("-") and given not in self.verbs:
            near = difflib.get_close_matches(given.lower(), self.verbs, n=3, cutoff=0.6)
            hint = f"did you mean {' or '.join(near)}?" if near else f"{ctx.command_path} --help lists them."
            raise click.UsageError(f"There is no command {short(given)}: {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(verb, text) for verb, (_, text) in self.verbs.items()])
