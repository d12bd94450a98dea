"""The one error tree (RFC-1001 §14.1).

    NoesiumError
    ├── ConfigError                     a setting, a URL or an option is wrong
    │   └── LogUrlError                 a log URL cannot be read
    ├── EventError
    │   ├── EventValidationError        an event is not what it says it is (field, reason)
    │   │   ├── UnknownSchemaError      its type, its version or its writer schema is not known here
    │   │   └── SignatureError          it is signed and the signature does not hold
    │   └── EventStoreError             the log cannot do what was asked
    │       ├── LogUnavailableError     nobody answers at the log's address            (retriable)
    │       ├── LogForbiddenError       this user has no right to do that there
    │       ├── LogUnsupportedError     the broker cannot do what this package needs
    │       ├── LogFullError            no room left under the log                     (retriable)
    │       ├── LogCorruptError         the log's file is torn, foreign or damaged
    │       ├── LogClosedError          used after `close`
    │       ├── FencedError             another writer of the same id has taken over
    │       │   └── TenureEndedError    the group has given the partition to another member
    │       ├── CommitUnknownError      a commit's outcome is not known: open the writer again and read
    │       ├── LogTruncatedError       the cursor lies below the first retained offset
    │       ├── CorruptRecordError      one record cannot be decoded (topic, partition, offset)
    │       ├── RecordTooLargeError     a record exceeds what the log takes
    │       ├── TopicNotFoundError      no such topic
    │       └── TopicConfigError        a topic exists with settings that would lose or reorder events
    ├── BrokerError                     the local broker cannot be started, stopped or found
    ├── KernelError
    │   ├── NodeExecutionError          a node of a graph failed
    │   ├── CheckpointError             a run cannot be restored from its journal
    │   ├── ApprovalExpiredError        nobody answered a question in time, and nothing stands in for it
    │   ├── MigrationError              an open run cannot be moved to a new version of its graph (yet)
    │   ├── StateError                  a graph's state or delta cannot be recorded (names the path)
    │   ├── ReplayDivergenceError       a node did something else than what is recorded
    │   └── StrictModeError             something that a run in STRICT mode may not do
    │       ├── NondeterminismError     a node read clock, chance, network or files (node, what, where)
    │       └── GraphError              a graph whose outcome depends on what it does not declare (problems)
    ├── EffectFailedError               an effect failed: a person, or an earlier execution, said so
    ├── RunError
    │   ├── RunNotFoundError            no run of this id
    │   ├── InputDiffersError           a run of this idempotency key was asked something else
    │   ├── RunParkedError              the run waits for a worker that can go on with it (reason)
    │   ├── RunEndedError               the run has ended already and takes no more messages
    │   ├── ApprovalError               an answer that none of the run's open questions takes
    │   │   └── ApprovalClosedError     its question was answered already, or its deadline has passed
    │   ├── RunFailedError              the run ended with an error
    │   │   └── DeadlineExceededError   it had not ended by its deadline
    │   ├── RunCancelledError           the run was cancelled
    │   ├── EffectDecisionError         there is nothing to decide about this effect, or not in this way
    │   └── RunTimeoutError             no outcome within the time the caller would wait (retriable)
    ├── AgentError
    │   └── AgentLoadError              an agent's module cannot be imported or holds no agent
    ├── ProjectionError                 a projection cannot do what was asked
    │   ├── ProjectionLoadError         a projection's module cannot be imported or holds none
    │   ├── StateFileError              a state file is damaged, foreign or of something else: replay
    │   ├── RebuildDiffersError         a state folded anew is not the one that was there (row, both)
    │   ├── StateBusyError              another process writes this state file
    │   ├── StateNotStoredError         `apply` returned what no file can hold
    │   ├── ImpureProjectionError       `apply` did what a pure function cannot do (event, field)
    │   ├── EventHeldError              an event that `apply` cannot take stops the projection (position)
    │   ├── SequenceGapError            a run's journal lacks a record (run, numbers, position)
    │   ├── KeyElsewhereError           a key's state lives in another process (names the owner)
    │   └── SnapshotError               pushed states cannot be stored, found, read or trusted
    ├── DeadLetterError                 a dead letter is not there, or cannot be sent again or dropped
    ├── RehearsalError                  a test asks something of the test kit that it cannot do
    │   └── ScriptEndedError            more was asked than a test's script has answers
    └── CapabilityError
        └── CapabilityNotFoundError     no agent offers what was asked for

Every error is one sentence that says what was wrong and where; `hint` says what to do about it.
`retriable` tells whether the same call may succeed later without any change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar


class NoesiumError(Exception):
    """Base of all errors of this package; `retriable` and `hint` are part of its contract."""

    retriable: ClassVar[bool] = False

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n  {self.hint}"


def brief(error: BaseException, limit: int = 2_000) -> str:
    """What an error says, in at most `limit` characters; its type where it says nothing.

    Half a surrogate pair, as names of files may hold, is written out: UTF-8 cannot write it.
    """
    text = error.message if isinstance(error, NoesiumError) else str(error)
    text = (text or type(error).__name__).encode(errors="backslashreplace").decode()
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


class ConfigError(NoesiumError):
    """A setting, a URL or an option is wrong."""


class LogUrlError(ConfigError):
    """A log URL cannot be read."""


class EventError(NoesiumError):
    """Event system errors."""


class EventValidationError(EventError):
    """An event is not what it says it is.

    `field` is the path of the offending part (`payload.order`, `value` for the raw bytes), `reason`
    one sentence about it.
    """

    def __init__(self, field: str, reason: str, *, hint: str | None = None) -> None:
        super().__init__(f"{field}: {reason}", hint=hint)
        self.field = field
        self.reason = reason


class UnknownSchemaError(EventValidationError):
    """The event's type, version or writer schema is not known here."""


class SignatureError(EventValidationError):
    """The event is signed and the signature does not hold."""


class EventStoreError(EventError):
    """Event store read or write failure (RFC-1001 §14.1): base of everything the log raises."""


class LogUnavailableError(EventStoreError):
    """Nobody answers at the log's address."""

    retriable = True


class LogForbiddenError(EventStoreError):
    """The log knows this user, who has no right to do there what was asked; waiting changes nothing."""


class LogUnsupportedError(EventStoreError):
    """The log's broker cannot do what this package needs, or is set up not to; waiting changes nothing."""


class LogFullError(EventStoreError):
    """There is no room left under the log; nothing of the refused commit was written."""

    retriable = True


class LogCorruptError(EventStoreError):
    """The log's file is torn, foreign or damaged."""


class LogClosedError(EventStoreError):
    """The log, a writer or a subscription was used after it was closed."""


class FencedError(EventStoreError):
    """Another writer of the same id has taken over; nothing of this commit is visible."""


class TenureEndedError(FencedError):
    """The group has given the partition to another member, or is about to; nothing of this is visible."""


class CommitUnknownError(EventStoreError):
    """The outcome of a commit is not known: open the writer again and read what is there."""


class LogTruncatedError(EventStoreError):
    """The cursor lies below the first retained offset of its partition."""

    def __init__(self, topic: str, partition: int, wanted: int, first: int) -> None:
        super().__init__(
            f"{topic}/{partition}: offset {wanted} is no longer there, the first retained one is {first}.",
            hint="The events between were removed by retention. Rebuild from a snapshot that covers them, "
            "or start from the first retained offset on purpose.",
        )
        self.topic = topic
        self.partition = partition
        self.wanted = wanted
        self.first = first


class CorruptRecordError(EventStoreError):
    """One record cannot be decoded; `cause` is the `EventValidationError` that says why."""

    def __init__(self, topic: str, partition: int, offset: int, cause: EventValidationError) -> None:
        super().__init__(f"{topic}/{partition}@{offset}: {cause.message}", hint=cause.hint)
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.cause = cause


class RecordTooLargeError(EventStoreError):
    """A record exceeds what the log takes; nothing of its commit was written."""


class TopicNotFoundError(EventStoreError):
    """There is no topic of this name."""


class TopicConfigError(EventStoreError):
    """A topic exists with settings that would lose or reorder events."""


class BrokerError(NoesiumError):
    """The local broker cannot be started, stopped or found."""


class KernelError(NoesiumError):
    """Kernel execution errors."""


class NodeExecutionError(KernelError):
    """A node of a graph failed.

    After a crash it stands for a recorded failure: `recorded` has the type and the message of that one, and
    `where` the place in the user's code.
    """

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        recorded: tuple[str, str] | None = None,
        where: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.recorded = recorded
        self.where = where


def failure_of(error: BaseException) -> tuple[str, str]:
    """Type and message of a failure as events have them; of a recorded one those that are recorded."""
    if isinstance(error, NodeExecutionError) and error.recorded is not None:
        return error.recorded
    return type(error).__name__, brief(error)


def hint_of(error: BaseException) -> str | None:
    """What to do about a failure, as events have it."""
    return brief(NoesiumError(error.hint)) if isinstance(error, NoesiumError) and error.hint else None


class CheckpointError(KernelError):
    """A run cannot be restored from its journal."""


class MigrationError(KernelError):
    """An open run cannot be moved to a new version of its graph, or not yet: nothing of it was written."""


class ApprovalExpiredError(KernelError):
    """Nobody answered a question before its deadline, and the step said nothing of what to do then."""


class StateError(KernelError):
    """A graph's state or delta cannot be recorded; the message names the path in it."""


class ReplayDivergenceError(KernelError):
    """A node did something else than what its run's journal records."""


class StrictModeError(KernelError):
    """Something that a run in STRICT mode may not do (RFC-1001 §12.3)."""


class NondeterminismError(StrictModeError):
    """A node read the clock, randomness, the network or files (RFC-0003 §7).

    `node` is its name, `what` the call (`time.time`), `where` the place in the node's own code
    (`FILE:LINE`).
    """

    def __init__(self, message: str, *, node: str, what: str, where: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.node = node
        self.what = what
        self.where = where


class GraphError(StrictModeError):
    """A graph cannot run in STRICT mode; `problems` has one sentence for each reason."""

    def __init__(self, message: str, problems: Sequence[str], *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.problems = tuple(problems)


class EffectFailedError(NoesiumError):
    """An effect failed: a person said so, or an earlier execution recorded an error whose class is not here.

    `effect_id` names it on the log.
    """

    def __init__(self, message: str, *, effect_id: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.effect_id = effect_id


class RunError(NoesiumError):
    """Errors about one run."""


class RunNotFoundError(RunError):
    """There is no run of this id on this log."""


class InputDiffersError(RunError):
    """There is a run of this idempotency key, and it was asked something else."""


class RunParkedError(RunError):
    """The run is open, and no worker goes on with it; `reason` says why, as its journal has it."""

    def __init__(self, message: str, *, reason: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.reason = reason


class RunEndedError(RunError):
    """The run has ended already: it takes no more messages."""


class ApprovalError(RunError):
    """An answer that none of the run's open questions takes: none is open, several are, or not from here."""


class ApprovalClosedError(ApprovalError):
    """The question was answered already, or its deadline has passed."""


class RunFailedError(RunError):
    """The run ended with an error; the message is the run's own."""


class DeadlineExceededError(RunFailedError):
    """The run had not ended by the deadline that its command gave it, and was ended."""


class RunCancelledError(RunError):
    """The run was cancelled."""


class EffectDecisionError(RunError):
    """There is nothing to decide about this effect, or it cannot be decided in this way."""


class RunTimeoutError(RunError):
    """No outcome within the time that the caller was ready to wait; the run itself goes on."""

    retriable = True


class AgentError(NoesiumError):
    """Errors about agents as programs."""


class AgentLoadError(AgentError):
    """An agent's module cannot be imported, or holds no agent."""


class ProjectionError(NoesiumError):
    """A projection cannot do what was asked."""


class ProjectionLoadError(ProjectionError):
    """A projection's module cannot be imported, or holds no projection, or one that is declared wrongly."""


class StateFileError(ProjectionError):
    """A state file is damaged, foreign or of something else: it is discarded, and made anew from the log."""


class RebuildDiffersError(ProjectionError):
    """A state that was folded anew is not the one that was there; nothing was replaced."""


class StateBusyError(ProjectionError):
    """Another process writes this state file."""


class StateNotStoredError(ProjectionError):
    """A projection's state holds what JSON cannot say."""


class ImpureProjectionError(ProjectionError):
    """`apply` or `key` did what a pure function cannot do; names event and field."""


class EventHeldError(ProjectionError):
    """An event that the projection cannot take has stopped it; names the position."""


class SequenceGapError(ProjectionError):
    """A run's journal lacks a record; names run, numbers and position."""


class KeyElsewhereError(ProjectionError):
    """A key's state lives in another process; `owner` says which: `host/pid`."""

    def __init__(self, message: str, *, owner: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.owner = owner


class SnapshotError(ProjectionError):
    """Pushed states of a projection cannot be stored, found, read or trusted; names the place."""


class CapabilityError(NoesiumError):
    """Capability registry and resolution errors."""


class CapabilityNotFoundError(CapabilityError):
    """No matching capability found."""


class DeadLetterError(NoesiumError):
    """A dead letter is not there, is decided about already, or cannot be sent again."""


class RehearsalError(NoesiumError):
    """A test asks something of the test kit that it cannot do."""


class ScriptEndedError(RehearsalError):
    """A scripted model, effect or capability was asked more often than the script has answers."""
