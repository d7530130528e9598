"""`cost`: the time, the node-hours, the money and the energy that it took to reach an error.

The measures are DAWNBench's and MLPerf's, whose rules docs/beyond.md compares with these. A price and a
carbon intensity are never guessed: without them the columns are absent.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import click

from aiperf.commands.arguments import PATH, Number, output_option
from aiperf.commands.optional_libraries import extra
from aiperf.commands.site_options import node_price, price_option, site_option
from aiperf.commands.user_files import opened, write_file


@click.command()
@click.argument("paths", metavar="RUN|PACKAGE...", nargs=-1, required=True, type=PATH)
@click.option(
    "--error",
    type=Number(0, 1, min_open=True, max_open=True),
    required=True,
    help="Error to reach [0 to 1]; for text: bits per byte / 8.",
)
@price_option
@click.option(
    "--level",
    type=click.Choice(["L0", "L1", "L2"]),
    default="L0",
    help="What the energy includes. L0: devices; L1: nodes; L2: nodes, network and storage.",
)
@click.option(
    "--carbon",
    type=Number(0, 10_000),
    help="Carbon intensity of the site's power [g of CO2 equivalents per kWh].",
)
@site_option("its price")
@output_option("Also write a page to this file.")
def cost(
    paths: tuple[Path, ...],
    error: float,
    price_text: str | None,
    level: str,
    carbon: float | None,
    site: Path | None,
    output: Path | None,
) -> None:
    """Show when runs reached an error, and its cost: hours, node-hours, money, joules, carbon.

    An error is reached when a validation finds it and the test after the span confirms it. For several runs,
    which may differ only in their random seed, also shows the median, MLPerf's olympic mean and the
    coefficient of variation.
    """
    with extra("report"):
        from analysis.comparing.comparison import table_text
        from analysis.comparing.cost import cost as study
        from analysis.comparing.cost import cost_table, cost_text, whole_table
        from analysis.readings.energy import Level
        from analysis.readings.judgement import glance
    price = node_price(price_text, site)
    with ExitStack() as stack:
        # A package stays unpacked until its page is written.
        runs = [glance(stack.enter_context(opened(path))) for path in paths]
        costs = study(runs, error, price, Level[level], carbon)
        click.echo("\n".join(cost_text(costs)))
        for title, table in (("to the error", cost_table(costs)), ("the whole runs", whole_table(costs))):
            click.echo(f"\n{title}\n{table_text(table)}")
        if output is not None:
            with extra("report"):
                from analysis.pages.comparisons import cost_html
            click.echo(f"\n{write_file(output, cost_html(costs, runs))}")
