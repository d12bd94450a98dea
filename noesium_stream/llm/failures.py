"""The errors of the providers' clients, by what they mean: one class each, whatever the provider."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from pydantic import ValidationError

from noesium_stream.errors import (
    ConfigError,
    ModelAccessError,
    ModelAnswerError,
    ModelContextError,
    ModelError,
    ModelOutageError,
    ModelRateLimitError,
    ModelRefusalError,
    ModelTimeoutError,
    brief,
)
from noesium_stream.redaction import without

MAX_RETRY_AFTER_S: Final = 86_400.0
_MOST: Final = 600
_OF_PROMPTS: Final = "langchain_core"
"""It reads prompts; what it refuses is no answer."""
_PACKAGE: Final = "noesium_stream"
_BROKEN_OFF: Final = ("RemoteProtocolError", "ReadError", "ClientPayloadError", "ServerDisconnectedError")
"""Of httpx and aiohttp; LiteLLM gives them a status of 500, as it does with answers that are no JSON."""
_CONTEXT: Final = re.compile(
    r"context.{0,3}length|context window|maximum context|too many tokens|n_ctx", re.I
)
_FILTER: Final = re.compile(r"content.{0,2}(filter|policy|management)", re.I)


@contextmanager
def as_model_error(model: str, secrets: Mapping[str, Any]) -> Iterator[None]:
    """Raise what a client's call raises as `failure_of_call` says; programming errors as they are.

    Each provider's client has error classes of its own, and a broken answer may raise anything in it.
    """
    try:
        yield
    except Exception as error:
        failure = failure_of_call(error, model, secrets)
        if failure is error:
            raise
        raise failure from error


@contextmanager
def as_config_error(what: str, secrets: Mapping[str, Any], hint: str | None = None) -> Iterator[None]:
    """Raise what a client's constructor raises as a `ConfigError`; programming errors as they are."""
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:
        if _is_our_own(error):
            raise
        raise ConfigError(f"{what}: {_reason(error, secrets)}", hint=hint) from error


def _is_our_own(error: BaseException) -> bool:
    """Whether an error was raised by code of this package, and not by a client that it called.

    Such an error is a mistake here: what a client does is done in its own frames.
    """
    return _raised_in(error) in ("", _PACKAGE)


def _raised_in(error: BaseException) -> str:
    """The package whose code has raised an error; empty: it was not raised."""
    trace = error.__traceback__
    if trace is None:
        return ""
    while trace.tb_next is not None:
        trace = trace.tb_next
    return str(trace.tb_frame.f_globals.get("__name__", "")).partition(".")[0]


def _reason(error: Exception, settings: Mapping[str, Any]) -> str:
    """The message of a client's error without the given values: one may be a key."""
    if isinstance(error, ValidationError):
        parts = (f"{'.'.join(map(str, one['loc'])) or 'settings'}: {one['msg']}" for one in error.errors())
        return without("; ".join(parts), settings)
    return without(brief(error), settings)


def failure_of_call(error: Exception, model: str, secrets: Mapping[str, Any]) -> Exception:
    """The error of a call as a `ModelError`; one that is no failure of a provider is returned unchanged.

    Args:
        error: what the client raised.
        model: `provider:name`.
        secrets: settings whose values must not be shown.
    """
    if isinstance(error, ModelError) or _is_our_own(error):
        return error
    said = f"{model}: {without(brief(error, _MOST), secrets)}"
    if any(isinstance(one, json.JSONDecodeError) for one in _chain(error)):
        return ModelAnswerError(f"The answer is no JSON: {said}")
    if any(_is(one, *_BROKEN_OFF) for one in _chain(error)):
        return ModelAnswerError(f"The connection broke off within the answer of {said}")
    for one in _chain(error):
        status = _status(one)
        if status is not None:
            return _of_status(status, one, said)
        if _is(one, "TimeoutException", "APITimeoutError", "Timeout"):
            return ModelTimeoutError(f"No answer in time from {said}")
        if _is(one, "TransportError", "ConnectionError"):
            return ModelOutageError(f"No answer from {said}")
    return _by_class(error, said)


def _by_class(error: Exception, said: str) -> Exception:
    if _is(error, "APIConnectionError", "ServiceUnavailableError"):
        return ModelOutageError(f"No answer from {said}")
    if _is(error, "APIResponseValidationError", "APIError", "LengthFinishReasonError", "ResponseError"):
        return ModelAnswerError(f"No usable answer of {said}")
    if _is(error, "ContentFilterFinishReasonError", "OpenAIRefusalError"):
        return ModelRefusalError(f"No answer of {said}")
    if isinstance(error, KeyError | TypeError | IndexError | AttributeError | ValidationError):
        return ModelAnswerError(f"The answer has not the form of one: {said}")  # clients trust the provider
    if isinstance(error, ValueError) and _raised_in(error) != _OF_PROMPTS:
        return ModelAnswerError(f"The answer has not the form of one: {said}")
    return error


def _of_status(status: int, error: BaseException, said: str) -> ModelError:
    what = f"{status} of {said}"
    if status == 429:
        return ModelRateLimitError(
            f"Too many calls: {what}",
            retry_after=_retry_after(error),
            hint="Have it called again later (retries=Retries(…)), or route to another model.",
        )
    if status in (400, 413, 422) and _CONTEXT.search(said):
        return ModelContextError(f"The prompt is too long: {what}")
    if status in (400, 422) and _FILTER.search(said):
        return ModelRefusalError(f"The prompt is refused: {what}")
    if status == 408:
        return ModelTimeoutError(f"No answer in time: {what}")
    if status >= 500:
        return ModelOutageError(f"The provider is not well: {what}")
    return ModelAccessError(
        f"The call is not accepted: {what}", hint="Check its key, model, address, settings."
    )


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and what caused it."""
    seen: set[int] = set()
    found: BaseException | None = error
    while found is not None and id(found) not in seen and len(seen) < 20:
        seen.add(id(found))
        yield found
        found = found.__cause__ or found.__context__


def _status(error: BaseException) -> int | None:
    """The HTTP status that an error carries, if it is one of an error."""
    response = getattr(error, "response", None)
    for found in (getattr(error, "status_code", None), getattr(response, "status_code", None)):
        if isinstance(found, int) and not isinstance(found, bool) and 400 <= found <= 599:
            return found
    return None


def _retry_after(error: BaseException) -> float | None:
    headers = getattr(getattr(error, "response", None), "headers", None)
    found = headers.get("retry-after") if isinstance(headers, Mapping) else None
    if not isinstance(found, str) or re.fullmatch(r"\d{1,9}(\.\d{1,9})?", found.strip()) is None:
        return None
    return min(float(found), MAX_RETRY_AFTER_S)


def _is(error: BaseException, *names: str) -> bool:
    """Whether an error is of a class with one of these names: the clients' packages are not imported here."""
    return any(kind.__name__ in names for kind in type(error).__mro__)
