"""Prices: those of `genai-prices`, declared ones, and None where nobody knows."""

from __future__ import annotations

from typing import Any

import genai_prices
import pytest

from noesium_stream.errors import ConfigError
from noesium_stream.llm.pricing import NANO, check_prices, price_of, reported_price


@pytest.mark.parametrize("model", ["openai:gpt-4o-mini", "openai:gpt-4o", "anthropic:claude-sonnet-4-5"])
@pytest.mark.parametrize("tokens", [(0, 0, 0), (1_000, 10, 0), (300_000, 5_000, 200_000), (7, 0, 7)])
def test_it_is_what_the_package_says(model: str, tokens: tuple[int, int, int]) -> None:
    provider, _, name = model.partition(":")
    given, made, cached = tokens
    usage = genai_prices.Usage(input_tokens=given, output_tokens=made, cache_read_tokens=cached or None)
    expected = genai_prices.calc_price(usage, name, provider_id=provider).total_price
    assert price_of(model, *tokens) == round(expected * NANO)


@pytest.mark.parametrize("model", ["openai:nobody-knows", "ollama:llama3.2", "nowhere:x", "x", ""])
def test_a_price_that_nobody_knows_is_none_and_not_zero(model: str) -> None:
    assert price_of(model, 10, 10) is None
    assert price_of(model, 10, 10, 4, {"input": 1, "output": 2, "cached": 0.5}) == 6_000 + 2_000 + 20_000


@pytest.mark.parametrize("prices", [{"input": 1}, {"input": -1, "output": 1}, {"input": True, "output": 1}])
def test_declared_prices_are_checked(prices: Any) -> None:
    with pytest.raises(ConfigError, match="price"):
        check_prices(prices)


@pytest.mark.parametrize("value", [None, "1", True, -1, float("nan"), float("inf"), 10**9])
def test_a_reported_price_that_is_none_is_refused(value: Any) -> None:
    assert reported_price(value) is None
    assert reported_price(0.25) == NANO // 4
