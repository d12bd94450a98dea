"""What a call costs, in nano-dollars, by `genai-prices`, whose prices come with the package.

A price that is not known is None, and never 0.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from functools import lru_cache
from typing import Any, Final

from noesium_stream.errors import ConfigError

NANO: Final = 1_000_000_000
MAX_NANO_USD: Final = 1_000_000 * NANO
"""A million dollars: more than any call costs."""

_PROVIDERS: Final = {
    "google_genai": "google",
    "google_vertexai": "google",
    "azure_openai": "azure",
    "azure_ai": "azure",
    "bedrock": "aws",
    "bedrock_converse": "aws",
    "mistralai": "mistral",
    "xai": "x-ai",
}
"""Names that LangChain and `genai-prices` have for the same provider."""

Prices = Mapping[str, Any]
"""Declared prices, in dollars per million tokens: `input`, `output`, and `cached` (default: as `input`)."""


def check_prices(prices: Prices | None) -> Prices | None:
    """Declared prices, if they are any.

    Raises:
        ConfigError: names the field.
    """
    if prices is None:
        return None
    for name, value in prices.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if name not in ("input", "output", "cached") or not (number and 0 <= value <= 1_000_000):
            raise ConfigError(
                f"The price {name!r} of a model is not valid.",
                hint="Prices are dollars per million tokens: {'input': 0.15, 'output': 0.6}.",
            )
    if not {"input", "output"} <= set(prices):
        raise ConfigError("The prices of a model need both 'input' and 'output'.")
    return dict(prices)


def price_of(
    model: str, input_tokens: int, output_tokens: int, cached_tokens: int = 0, prices: Prices | None = None
) -> int | None:
    """The price of a call in nano-dollars; None: it is not known.

    Args:
        model: `provider:name`.
        input_tokens: of the prompt, with the cached ones.
        output_tokens: of the answer.
        cached_tokens: those of the prompt that were in the provider's cache.
        prices: declared ones; None: the known ones.
    """
    if prices is not None:
        fresh = (input_tokens - cached_tokens) * Decimal(str(prices["input"]))
        cached = cached_tokens * Decimal(str(prices.get("cached", prices["input"])))
        dollars = (fresh + cached + output_tokens * Decimal(str(prices["output"]))) / 1_000_000
        return _nano(dollars)
    package = _package()
    if package is None:
        return None
    rates = _rates(model)
    if rates is not None:
        return price_of(model, input_tokens, output_tokens, cached_tokens, rates)
    provider, _, name = model.partition(":")
    usage = package.Usage(
        input_tokens=input_tokens, output_tokens=output_tokens, cache_read_tokens=cached_tokens or None
    )
    try:
        found = package.calc_price(usage, name, provider_id=_PROVIDERS.get(provider, provider))
    except (LookupError, ValueError, ArithmeticError):
        return None
    return _nano(found.total_price)


@lru_cache(maxsize=256)
def _rates(model: str) -> Prices | None:
    """The prices of a model for which they depend on neither the time nor the number of tokens; else None."""
    package, (provider, _, name) = _package(), model.partition(":")
    usage = package.Usage(input_tokens=1, output_tokens=1)
    try:
        found = package.calc_price(usage, name, provider_id=_PROVIDERS.get(provider, provider))
    except (LookupError, ValueError, ArithmeticError):
        return None
    named = {"input": "input_mtok", "output": "output_mtok", "cached": "cache_read_mtok"}
    prices = {ours: getattr(found.model_price, theirs, None) for ours, theirs in named.items()}
    if prices["cached"] is None:
        del prices["cached"]
    if isinstance(found.model.prices, list) or any(not isinstance(one, Decimal) for one in prices.values()):
        return None
    return prices


@lru_cache(maxsize=1)
def _package() -> Any:
    """`genai-prices`; None if it is not installed."""
    try:
        return importlib.import_module("genai_prices")
    except ImportError:
        return None


def reported_price(value: Any) -> int | None:
    """The price of a call as a provider reports it in dollars; None: it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = _nano(Decimal(str(value)))
    except InvalidOperation:
        return None
    return found if found is not None and found >= 0 else None


def _nano(dollars: Decimal) -> int | None:
    if not dollars.is_finite() or not 0 <= dollars <= MAX_NANO_USD // NANO:
        return None
    return int((dollars * NANO).to_integral_value(ROUND_HALF_UP))
