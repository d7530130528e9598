"""What a node costs: how it is written, and what is refused."""

from __future__ import annotations

import pytest

from aiperf.errors import ConfigError
from launch.price import Price, parse_price
from launch.site import Site, site_from_toml


@pytest.mark.parametrize(
    ("text", "price", "words"),
    [
        ("12.5/node-hour", Price(12.5), "12.5 per node-hour"),
        ("12.5USD/node-hour", Price(12.5, "USD"), "12.5 USD per node-hour"),
        (" .9 EUR/node-hour", Price(0.9, "EUR"), "0.9 EUR per node-hour"),
    ],
)
def test_a_price_is_read_and_written(text: str, price: Price, words: str) -> None:
    assert parse_price("--price", text) == price
    assert str(price) == words


@pytest.mark.parametrize(
    "text",
    [
        "",
        "12.5",
        "12.5/hour",
        "-1/node-hour",
        "0/node-hour",
        "1e3/node-hour",
        "$5/node-hour",
        "9" * 400 + "/node-hour",
    ],
)
def test_what_is_no_price_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^--price is .*; give an amount above 0, such as 12\.5/node-hour"):
        parse_price("--price", text)


def test_a_site_states_a_price_or_none() -> None:
    assert Site().node_price is None
    assert site_from_toml('price = "3/node-hour"', "s").node_price == Price(3.0)
    with pytest.raises(ConfigError, match=r"^s: .*price is 'three'"):
        site_from_toml('price = "three"', "s")
