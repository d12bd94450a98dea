"""Translation of both clients' errors to those of this package; recognition of broken connections."""

from __future__ import annotations

import logging
import math
import re
import time
from typing import Final

from aiokafka import errors as aio
from confluent_kafka import KafkaError, KafkaException

from noesium_stream.errors import (
    EventStoreError,
    FencedError,
    LogForbiddenError,
    LogFullError,
    LogUnavailableError,
    LogUnsupportedError,
    RecordTooLargeError,
    TopicNotFoundError,
)

OPEN_TIMEOUT_S: Final = 10.0
"""Timeout for a broker's first answer when a log is opened."""

PATIENCE_S: Final = 30.0
"""How long running operations wait for a broker that is unavailable (a restart takes 3-10 s)."""

FENCED: Final = frozenset(
    {
        KafkaError._FENCED,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
    }
)
NO_MEMBER: Final = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError.REBALANCE_IN_PROGRESS,
    }
)
"""A group coordinator's errors for a client that is not a member, or was one in an earlier generation."""

_REFUSED: Final = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError._SSL,
    }
)
_FORBIDDEN: Final = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
_UNSUPPORTED: Final = frozenset(
    {
        KafkaError.UNSUPPORTED_VERSION,
        KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        KafkaError.UNSUPPORTED_COMPRESSION_TYPE,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
        KafkaError.INVALID_TRANSACTION_TIMEOUT,
        KafkaError.INVALID_SESSION_TIMEOUT,
        KafkaError.INVALID_REQUIRED_ACKS,
        KafkaError.INCONSISTENT_GROUP_PROTOCOL,
        KafkaError.POLICY_VIOLATION,
        KafkaError.SECURITY_DISABLED,
        KafkaError._UNSUPPORTED_FEATURE,
        KafkaError._NOT_IMPLEMENTED,
    }
)
FOR_GOOD: Final = (LogForbiddenError, LogUnsupportedError)
"""Errors that neither a retry nor a new producer can resolve."""

_AWAY: Final = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._MSG_TIMED_OUT,
        KafkaError._RESOLVE,
        KafkaError._PURGE_QUEUE,
        KafkaError._PURGE_INFLIGHT,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.NOT_COORDINATOR,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.UNSTABLE_OFFSET_COMMIT,
        KafkaError._WAIT_COORD,
        KafkaError._NOENT,
        KafkaError._WAIT_CACHE,
        KafkaError._DESTROY_BROKER,
        KafkaError._NODE_UPDATE,
        KafkaError._OUTDATED,
        KafkaError._PARTIAL,
        KafkaError.NOT_CONTROLLER,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
    }
)


def quiet_loggers() -> None:
    """Keep aiokafka away from standard error: this package reports the same problems as errors.

    To see its output, set the level of the logger `aiokafka`.
    """
    logger = logging.getLogger("aiokafka")
    if logger.level == logging.NOTSET:
        logger.addHandler(logging.NullHandler())
        logger.setLevel(logging.CRITICAL + 1)


def unavailable(
    bootstrap: str, waited_s: float = OPEN_TIMEOUT_S, reason: str | None = None
) -> LogUnavailableError:
    """The error for a broker that does not answer."""
    detail = f" {reason}." if reason else ""
    return LogUnavailableError(
        f"no Kafka broker answers at {bootstrap} (tried for {waited_s:.0f} s).{detail}",
        hint="Start one with `noesium broker up`, or give another address with --log or NOESIUM_LOG.",
    )


def refused(bootstrap: str, reason: str) -> LogUnavailableError:
    """The error for a broker that refuses this client, or that this client does not trust."""
    if "certificate verify failed" in reason:
        return LogUnavailableError(
            f"the certificate of the Kafka broker at {bootstrap} cannot be trusted: no authority that is "
            "known here has signed it, it is out of date, or it is not for this host.",
            hint="Name the file of its authority's certificate with ?ca=FILE or NOESIUM_KAFKA_CA, and the "
            "host as the certificate does.",
        )
    return LogUnavailableError(
        f"the Kafka broker at {bootstrap} does not let us in: {_plain(reason)}.",
        hint="Check security, mechanism and ca, NOESIUM_KAFKA_USERNAME and NOESIUM_KAFKA_PASSWORD.",
    )


def forbidden(bootstrap: str, what: str, reason: str) -> LogForbiddenError:
    """The error for a broker that knows this user but denies it the operation."""
    return LogForbiddenError(
        f"{what}: the Kafka broker at {bootstrap} does not allow it: {_plain(reason)}.",
        hint="Ask an operator to give this user the right; `noesium security acls` lists who needs which.",
    )


def unsupported(bootstrap: str, what: str, reason: str) -> LogUnsupportedError:
    """The error for a broker that is too old, or whose configuration does not support the operation."""
    return LogUnsupportedError(
        f"{what}: the Kafka broker at {bootstrap} cannot do it: {_plain(reason)}.",
        hint="Noesium is made for Kafka 4.2: look at the broker's version, and at what is set otherwise "
        "there than in deploy/compose.yaml.",
    )


_HANGS_UP_ON: Final = {
    "PLAINTEXT": "It may want TLS (?security=tls), or a user name and a password (NOESIUM_KAFKA_USERNAME and "
    "NOESIUM_KAFKA_PASSWORD).",
    "SSL": "It may want a user name and a password (NOESIUM_KAFKA_USERNAME and NOESIUM_KAFKA_PASSWORD), a "
    "certificate of ours (cert and key), or no TLS (?security=plaintext).",
    "SASL_PLAINTEXT": "It may want TLS (?security=sasl_ssl).",
    "SASL_SSL": "It may want a certificate of ours (cert and key), or no TLS (?security=sasl_plaintext).",
}


def hangs_up(bootstrap: str, security: str, waited_s: float) -> LogUnavailableError:
    """The error for a broker that accepts connections and closes them; `security` as in `KafkaSettings`."""
    kind = "encrypted" if security.endswith("SSL") else "plain"
    return LogUnavailableError(
        f"what listens at {bootstrap} hangs up on our {kind} connection (tried for {waited_s:.0f} s).",
        hint=_HANGS_UP_ON[security],
    )


def _plain(reason: str) -> str:
    """librdkafka's message, without its names for connections and their states."""
    reason = re.sub(r"^(?:\w+://)?\S+/(?:bootstrap|\d+): ", "", reason)
    return re.sub(r" \(after \d+ms in state \w+[^)]*\)$", "", reason).rstrip(".: ")


def translated(error: KafkaError | KafkaException, bootstrap: str, what: str) -> EventStoreError:
    """This package's error for librdkafka's; `what` is the operation, e.g. `the commit of writer w`."""
    cause: KafkaError = error.args[0] if isinstance(error, KafkaException) else error
    code, text = cause.code(), cause.str()
    if code in FENCED:
        return fenced(what)
    if code in _REFUSED:
        return refused(bootstrap, text)
    if code in _FORBIDDEN:
        return forbidden(bootstrap, what, text)
    if code in _UNSUPPORTED:
        return unsupported(bootstrap, what, f"{cause.name()}: {text}")
    if code in _AWAY:
        return unavailable(bootstrap, PATIENCE_S, f"{what}: {text}")
    if code in (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE):
        return RecordTooLargeError(f"{what}: the broker takes no record of this size ({text}).")
    if code in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION):
        return TopicNotFoundError(f"{what}: the topic is not there ({text}).")
    if code == KafkaError.KAFKA_STORAGE_ERROR:
        return LogFullError(f"{what}: the broker cannot write ({text}).", hint="Is its disk full?")
    return EventStoreError(f"{what} has failed: {cause.name()}: {text}")


_AIO_FORBIDDEN: Final = (
    aio.TopicAuthorizationFailedError,
    aio.GroupAuthorizationFailedError,
    aio.ClusterAuthorizationFailedError,
    aio.TransactionalIdAuthorizationFailed,
)
_AIO_UNSUPPORTED: Final = (
    aio.UnsupportedVersionError,
    aio.UnsupportedForMessageFormatError,
    aio.UnsupportedSaslMechanismError,
    aio.UnsupportedCodecError,
    aio.IncompatibleBrokerVersion,
    aio.PolicyViolationError,
    aio.SecurityDisabled,
)


def translated_aio(error: Exception, bootstrap: str, what: str) -> EventStoreError:
    """This package's error for aiokafka's."""
    if isinstance(error, aio.AuthenticationFailedError | aio.SaslAuthenticationFailed):
        return refused(bootstrap, str(error))
    if isinstance(error, _AIO_FORBIDDEN):
        return forbidden(bootstrap, what, str(error))
    if isinstance(error, _AIO_UNSUPPORTED):
        return unsupported(bootstrap, what, str(error))
    if isinstance(error, aio.MessageSizeTooLargeError | aio.RecordListTooLargeError):
        return RecordTooLargeError(f"{what}: the broker takes no record of this size.")
    if isinstance(error, aio.UnknownTopicOrPartitionError):
        return TopicNotFoundError(f"{what}: the topic is not there.")
    return unavailable(bootstrap, PATIENCE_S, f"{what}: {type(error).__name__}")


def fenced(what: str) -> FencedError:
    """The error for a writer whose id another writer holds now."""
    return FencedError(
        f"{what} was fenced: a newer writer holds its id.",
        hint="Nothing of this commit is on the log. Stop, or open the writer again.",
    )


def let_go(what: str, reason: str) -> FencedError:
    """The error for a writer whose client cannot continue; its current transaction is not committed."""
    return FencedError(
        f"{what} has let go of its id {reason}.",
        hint="Nothing of this commit is on the log. Open the writer again.",
    )


_OF_BREAKS: Final = ("FAIL", "REQTMOUT")


class ClientLog:
    """Receives librdkafka's log lines and errors; prints nothing, but keeps what matters.

    `disturbed_s`: the last time (monotonic, in seconds) that the connection to the transaction coordinator
    broke or a request timed out there, so that a copy of a request may still be under way.
    `hung_up`: the last connection that failed was accepted, and closed by the other side.
    `refusal`: the reason why a broker refused us, or why we do not trust it (`on_error` is the client's
    `error_cb`).
    """

    def __init__(self) -> None:
        self.disturbed_s = -math.inf
        self.hung_up = False
        self.refusal: KafkaError | None = None

    def on_error(self, error: KafkaError) -> None:
        """Called by the client's `poll` for each error that belongs to no request."""
        if error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL):
            self.refusal = error

    def log(self, level: int, message: str, *arguments: str) -> None:
        """Called by the client's `poll` for each line; `arguments` are facility, client and text."""
        facility, text = arguments[0], arguments[-1]
        if facility not in _OF_BREAKS:
            return
        if facility == "FAIL":
            self.hung_up = "Disconnected" in text or "SSL alert" in text
        if "TxnCoordinator" in text:
            self.disturbed_s = time.monotonic()
