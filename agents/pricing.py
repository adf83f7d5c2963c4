"""What tokens cost: a date-stamped table of prices, and one formula in which every token is counted once."""

from __future__ import annotations

from datetime import date
from functools import cache
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agents.base import Usage

TABLE = Path(__file__).with_name("prices.yaml")
_MILLION = 1e6
PROVIDERS_OWN = "provider, per request"  # source of a cost that the provider put on every answer


class Price(BaseModel):
    """Prices of one model in USD per million tokens."""

    model_config = ConfigDict(extra="forbid")

    input: float = Field(ge=0)
    output: float = Field(ge=0)
    cached: float | None = Field(default=None, ge=0)
    cache_write: float | None = Field(default=None, ge=0)


class PriceTable(BaseModel):
    """Prices of many models, with the day on which they were looked up."""

    model_config = ConfigDict(extra="forbid")

    date: date
    source: str
    models: dict[str, Price]

    def find(self, model: str) -> Price | None:
        """Return a model's price: by its name, else by its name without the maker and without a variant (``:free``)."""
        if model in self.models:
            return self.models[model]
        plain = _plain(model)
        found = {id(price): price for name, price in self.models.items() if _plain(name) == plain}
        return next(iter(found.values())) if len(found) == 1 else None

    def cost(self, usage: Usage, model: str | None) -> float | None:
        """Return the cost of a usage in USD, ``None`` where the model or a token count is unknown.

        ``(input − cached − cache write) · input + cached · cached + cache write · cache write + output · output``.
        """
        price = None if model is None else self.find(model)
        if price is None or usage.input_tokens is None or usage.output_tokens is None:
            return None
        cached, written = usage.cached_tokens or 0, usage.cache_write_tokens or 0
        fresh = max(0, usage.input_tokens - cached - written)
        total = fresh * price.input + usage.output_tokens * price.output
        total += cached * (price.input if price.cached is None else price.cached)
        total += written * (price.input if price.cache_write is None else price.cache_write)
        return total / _MILLION


def _plain(model: str) -> str:
    return model.rpartition("/")[2].partition(":")[0].lower().replace(".", "-")


@cache
def read_prices(path: Path = TABLE) -> PriceTable:
    """Read a price table; raise ``ValueError`` that names the file and what is wrong in it."""
    try:
        return PriceTable.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ValueError(f"{path}: cannot be read: {error}") from error
    except ValidationError as error:
        fault = error.errors()[0]
        raise ValueError(f"{path}: {'.'.join(map(str, fault['loc']))}: {fault['msg']}") from error


def priced(usage: Usage, model: str | None, table: PriceTable | None = None) -> Usage:
    """Return the usage with a cost: the provider's own where it has one, else from the table; the source is noted."""
    if usage.cost_usd is not None:
        return usage
    chosen = table or read_prices()
    cost = chosen.cost(usage, model)
    if cost is None:
        return usage
    return usage.model_copy(update={"cost_usd": cost, "cost_source": f"price table of {chosen.date.isoformat()}"})
