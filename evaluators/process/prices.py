"""What judges cost, to price requests before they are sent and tokens after; list prices in USD per million tokens."""

from __future__ import annotations

from dataclasses import dataclass

from evaluators.process.model import JudgeUsage

BATCH_SHARE = 0.5  # of the list price, for what goes through a provider's batches


@dataclass(frozen=True)
class Price:
    """Price of a model: fresh input, input read from and written to a cache, output."""

    fresh: float
    cached: float
    written: float
    output: float


# From the study's price table; writing to the cache is billed at 1.25 times the input price by the provider.
PRICES = {
    "claude-sonnet-5": Price(2.0, 0.2, 2.5, 10.0),
    "claude-opus-5": Price(5.0, 0.5, 6.25, 25.0),
}


def price_of(model: str) -> Price | None:
    """Return the price of a model, with or without the name of a router in front; ``None`` where it is not known."""
    return PRICES.get(model.rsplit("/", 1)[-1])


def cost(usage: JudgeUsage, price: Price | None, batch: bool = False) -> float | None:
    """Price tokens in USD; ``None`` where the model's price is not known."""
    if price is None:
        return None
    total = (
        usage.input_tokens * price.fresh
        + usage.cache_read_tokens * price.cached
        + usage.cache_write_tokens * price.written
        + usage.output_tokens * price.output
    )
    return total * (BATCH_SHARE if batch else 1.0) / 1e6
