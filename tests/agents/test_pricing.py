"""Prices: every token counted once, absent stays absent, the source is noted."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from agents.base import Usage
from agents.pricing import Price, PriceTable, priced, read_prices

TABLE = PriceTable(
    date=date(2026, 1, 2),
    source="test",
    models={
        "maker/model-1.5": Price(input=10, cached=1, cache_write=12.5, output=100),
        "plain": Price(input=1, output=2),
    },
)


def test_each_token_is_counted_once() -> None:
    usage = Usage(input_tokens=1_000_000, cached_tokens=600_000, cache_write_tokens=100_000, output_tokens=10_000)
    # 300 000 fresh at 10, 600 000 read at 1, 100 000 written at 12.5, 10 000 out at 100
    assert TABLE.cost(usage, "maker/model-1.5") == pytest.approx(3.0 + 0.6 + 1.25 + 1.0)


def test_without_cache_prices_the_input_price_holds() -> None:
    usage = Usage(input_tokens=1_000_000, cached_tokens=600_000, cache_write_tokens=100_000, output_tokens=0)
    assert TABLE.cost(usage, "plain") == pytest.approx(1.0)


@pytest.mark.parametrize(
    "name", ["maker/model-1.5", "model-1.5", "model-1-5", "maker/model-1-5:nitro", "Maker/Model-1.5"]
)
def test_names_of_a_model(name: str) -> None:
    assert TABLE.find(name) is not None


def test_absent_stays_absent() -> None:
    assert TABLE.cost(Usage(input_tokens=1, output_tokens=1), "unknown") is None
    assert TABLE.cost(Usage(input_tokens=1), "plain") is None
    assert TABLE.cost(Usage(), None) is None
    assert priced(Usage(), "plain", TABLE) == Usage()


def test_a_providers_bill_goes_before_the_table() -> None:
    billed = Usage(input_tokens=1, output_tokens=1, cost_usd=0.5, cost_source="provider, per request")
    assert priced(billed, "plain", TABLE) == billed
    derived = priced(Usage(input_tokens=1_000_000, output_tokens=0), "plain", TABLE)
    assert (derived.cost_usd, derived.cost_source) == (1.0, "price table of 2026-01-02")


def test_the_table_that_comes_with_it() -> None:
    table = read_prices()
    assert table.find("anthropic/claude-opus-5") is not None
    for name, price in table.models.items():
        assert price.cached is None or price.cached < price.input < price.output, name


@pytest.mark.parametrize(
    ("text", "what"),
    [("models: {}", "date"), ("date: 2026-01-01\nsource: x\nmodels: {m: {input: -1, output: 1}}", "models.m.input"),
     ("{", "cannot be read")],
)  # fmt: skip
def test_a_bad_table_names_its_file_and_its_fault(tmp_path: Path, text: str, what: str) -> None:
    path = tmp_path / "prices.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=rf"prices\.yaml.*{what}"):
        read_prices(path)
