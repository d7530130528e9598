"""What a node costs for an hour: the owner's figure, never this program's, and never in a journal."""

from __future__ import annotations

import re
from math import isfinite

from aiperf.errors import ConfigError
from aiperf.wording import figure
from nas.frozen import frozen

FORM = re.compile(r"(?P<amount>\d+(?:\.\d+)?|\.\d+) ?(?P<currency>[A-Z]{3})?/node-hour")
"""An amount, an optional currency of three letters, and the unit."""
DOLLARS = "USD"
"""The currency in which DAWNBench compares costs."""


@frozen
class Price:
    """The price of one node for one hour, whatever the node does in it."""

    per_node_hour: float
    currency: str = ""
    """Three letters (ISO 4217); empty where the owner names none."""

    def money(self, node_hours: float) -> float:
        """The cost of this many node-hours, in the currency of the price. It is not rounded."""
        return self.per_node_hour * node_hours

    @property
    def unit(self) -> str:
        """Heading of a column of amounts."""
        return f"cost [{self.currency}]" if self.currency else "cost"

    def __str__(self) -> str:
        """The price as a page and the terminal show it."""
        return f"{figure(self.per_node_hour)}{self.currency and f' {self.currency}'} per node-hour"


def parse_price(key: str, text: str) -> Price:
    """The price in a text such as 12.5/node-hour or 12.5USD/node-hour. Raises ConfigError, which names
    `key`."""
    found = FORM.fullmatch(text.strip())
    amount = float(found["amount"]) if found else 0.0
    if found is None or not isfinite(amount) or amount <= 0:
        raise ConfigError(
            f"{key} is {text!r:.80}; give an amount above 0, such as 12.5/node-hour or 12.5USD/node-hour"
        )
    return Price(amount, found["currency"] or "")
