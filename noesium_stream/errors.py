"""The one error tree (RFC-1001 §14.1).

    NoesiumError
    ├── ConfigError                     a setting, a URL or an option is wrong
    │   └── LogUrlError                 a log URL cannot be read
    ├── EventError
    │   ├── EventValidationError        an event is not valid (field, reason)
    │   │   ├── UnknownSchemaError      its type, version or writer schema is not known here
    │   │   │   └── SubjectKeyError     the key of its data subject is not here (it was not destroyed)
    │   │   └── SignatureError          its signature is not valid
    │   └── EventStoreError             the log failed to read or write
    │       ├── LogUnavailableError     the log's address does not answer              (retriable)
    │       ├── LogForbiddenError       the log's user lacks a permission
    │       ├── LogUnsupportedError     the broker lacks a feature that this package needs
    │       ├── LogFullError            the log's storage is full                      (retriable)
    │       ├── LogCorruptError         the log's file is truncated, foreign or damaged
    │       ├── LogClosedError          used after `close`
    │       ├── FencedError             another writer of the same id has taken over
    │       │   └── TenureEndedError    the group has given the partition to another member
    │       ├── CommitUnknownError      a commit's outcome is not known: open the writer and read
    │       ├── LogTruncatedError       the cursor lies below the first retained offset
    │       ├── CorruptRecordError      one record cannot be decoded (topic, partition, offset)
    │       ├── RecordTooLargeError     a record exceeds the log's size limit
    │       ├── TopicNotFoundError      no such topic
    │       └── TopicConfigError        a topic exists with settings that would lose or reorder events
    ├── BrokerError                     the local broker cannot be started, stopped or found
    ├── KernelError
    │   ├── NodeExecutionError          a node of a graph failed
    │   ├── CheckpointError             a run cannot be restored from its journal
    │   ├── ApprovalExpiredError        nobody answered a question in time, and there is no default
    │   ├── MigrationError              an open run cannot be moved to a new version of its graph (yet)
    │   ├── StateError                  a graph's state or delta cannot be recorded (names the path)
    │   ├── ReplayDivergenceError       a node did not do what is recorded
    │   └── StrictModeError             a run in STRICT mode did something forbidden
    │       ├── NondeterminismError     a node read clock, chance, network or files (node, what, where)
    │       └── GraphError              a graph whose outcome depends on undeclared inputs (problems)
    ├── EffectFailedError               an effect failed by a person's decision or an earlier record
    │   └── RemoteError                 with an error whose class the agent's code does not name
    ├── OutcomeUnknownError             raised by an effect's function: the effect may have been done
    ├── RunError
    │   ├── RunNotFoundError            no run with this id
    │   ├── InputDiffersError           the run with this idempotency key has another input
    │   ├── RunStrandedError            the run waits for a worker that can continue it (reason)
    │   ├── RunEndedError               the run has ended already and takes no more messages
    │   ├── ApprovalError               no open question of the run takes this answer
    │   │   └── ApprovalClosedError     its question was answered already, or its deadline has passed
    │   ├── RunFailedError              the run ended with an error
    │   │   └── DeadlineExceededError   it, or a call of a step, had not ended by its deadline
    │   ├── RunCancelledError           the run was cancelled
    │   ├── EffectDecisionError         this effect needs no decision, or does not allow this one
    │   └── RunTimeoutError             no outcome within the caller's timeout        (retriable)
    ├── AgentError
    │   ├── AgentLoadError              an agent's module cannot be imported or holds no agent
    │   └── SubagentError               a command-line sub-agent did not do what it was asked for
    │       ├── SubagentStartError      its program cannot be started, or has failed too often
    │       ├── SubagentBusyError       too many calls wait for it already             (retriable)
    │       ├── SubagentTimeoutError    it did not answer in time, and was killed
    │       ├── SubagentExitedError     it ended before it answered
    │       ├── SubagentProtocolError   it printed what is no answer to the request, and was killed
    │       ├── SubagentAnswerError     it answered with an error
    │       └── SubagentStateError      its state does not allow what was asked of its adapter
    ├── ProjectionError                 a projection cannot be folded, stored or read
    │   ├── ProjectionLoadError         a projection's module cannot be imported or holds none
    │   ├── StateFileError              a state file is damaged, foreign or another's: replay
    │   ├── RebuildDiffersError         a rebuilt state differs from the existing one (row, both)
    │   ├── StateBusyError              another process writes this state file
    │   ├── StateNotStoredError         `apply` returned a value that cannot be stored
    │   ├── ImpureProjectionError       `apply` or `key` is not pure (event, field)
    │   ├── EventHeldError              `apply` cannot take an event: the projection stops (position)
    │   ├── SequenceGapError            a run's journal lacks a record (run, numbers, position)
    │   ├── KeyElsewhereError           a key's state is in another process (names the owner)
    │   └── SnapshotError               pushed states cannot be stored, found, read or trusted
    ├── ScheduleError                   no schedule of this name, or there is one already
    ├── DeadLetterError                 a dead letter does not exist, or cannot be redriven or dropped
    ├── RehearsalError                  the test kit cannot do what the test asks
    │   └── ScriptEndedError            a script has fewer answers than it gets calls
    ├── ErasureError                    a data subject cannot be erased, or something readable remains
    ├── AgentMemoryError                memory cannot be read or written (RFC-1001 calls it MemoryError)
    │   └── MemoryScopeError            no scope of memory, or one that is not the agent's
    ├── GoalError                       a goal of a run cannot be changed like this, or there is none
    ├── CapabilityError                 a call of another agent failed (error_type: there)
    │   ├── CapabilityNotFoundError     no agent offers what was asked for (considered)
    │   ├── CapabilityInputError        the provider does not take these arguments (names the field)
    │   ├── CapabilityOutputError       a result is not what the capability promises (names the field)
    │   └── CallLimitError              calls too deep, too many, or in a cycle
    ├── ModelError                      a call of a language model failed
    │   ├── ModelRateLimitError         the provider takes no more calls now               (retriable)
    │   ├── ModelOutageError            the provider does not answer, or is not well       (retriable)
    │   ├── ModelTimeoutError           it had not answered within the call's time limit   (retriable)
    │   ├── ModelContextError           the prompt is longer than the model takes
    │   ├── ModelRefusalError           the model, or a filter of its provider, refused to answer
    │   ├── ModelAnswerError            the answer is broken off, no answer, or not of the schema
    │   ├── ModelAccessError            the provider does not know the key, the model or the address
    │   └── BudgetExceededError         the call would exceed the budget of its run; it was not made
    │       └── ModelTooDearError       the same, where a cheaper model may be asked instead
    └── ToolError                       a tool cannot be used, or a call of one failed
        ├── ToolNotFoundError           the agent has no tool of this name
        ├── ToolInputError              the tool does not take these arguments (names the field)
        ├── ToolPermissionError         a call was refused: a permission, a rule, a person (reason)
        ├── ToolExecutionError          a tool says that it failed, or gave what is no result
        ├── ToolTimeoutError            a call had not ended within its time limit
        ├── ToolServerError             a server of tools does not answer, or breaks its protocol  (retriable)
        ├── SandboxError                there is no sandbox here, or it cannot be made
        └── SkillNotFoundError          no skill of this name, or its folder is not valid

Every error is one sentence that says what was wrong and where; `hint` says what to do.
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
    """The message of an error, in at most `limit` characters; its type if it has no message.

    Lone surrogates, as in file names, are escaped: UTF-8 cannot encode them.
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
    """An event is not valid.

    `field` is the path of the offending part (`payload.order`, `value` for the raw bytes), `reason` one
    sentence about it.
    """

    def __init__(self, field: str, reason: str, *, hint: str | None = None) -> None:
        super().__init__(f"{field}: {reason}", hint=hint)
        self.field = field
        self.reason = reason


class UnknownSchemaError(EventValidationError):
    """The event's type, version or writer schema is not known here."""


class SubjectKeyError(UnknownSchemaError):
    """The key of an event's data subject is not here, though it was not destroyed; or no key can be kept.

    As with an unknown schema, whoever has what is missing can read the event.
    """


class SignatureError(EventValidationError):
    """The event's signature is not valid."""


class EventStoreError(EventError):
    """Event store read or write failure (RFC-1001 §14.1): base of all errors of the log."""


class LogUnavailableError(EventStoreError):
    """The log's address does not answer."""

    retriable = True


class LogForbiddenError(EventStoreError):
    """The log's user lacks the permission for this request; a retry does not help."""


class LogUnsupportedError(EventStoreError):
    """The log's broker lacks a feature that this package needs, or has it disabled; a retry does not help."""


class LogFullError(EventStoreError):
    """The log's storage is full; nothing of the refused commit was written."""

    retriable = True


class LogCorruptError(EventStoreError):
    """The log's file is truncated, foreign or damaged."""


class LogClosedError(EventStoreError):
    """The log, a writer or a subscription was used after it was closed."""


class FencedError(EventStoreError):
    """Another writer of the same id has taken over; nothing of this commit is visible."""


class TenureEndedError(FencedError):
    """The group assigns the partition to another member; nothing of this commit is visible."""


class CommitUnknownError(EventStoreError):
    """The outcome of a commit is not known: open the writer again and read the log."""


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
    """One record cannot be decoded; `cause` is the `EventValidationError` with the reason."""

    def __init__(self, topic: str, partition: int, offset: int, cause: EventValidationError) -> None:
        super().__init__(f"{topic}/{partition}@{offset}: {cause.message}", hint=cause.hint)
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.cause = cause


class RecordTooLargeError(EventStoreError):
    """A record exceeds the log's size limit; nothing of its commit was written."""


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

    After a crash it represents a recorded failure: `recorded` has its type and message, and `where` the place
    in the user's code.
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
    """Type and message of a failure for events; for a recorded failure, the recorded ones."""
    if isinstance(error, (NodeExecutionError, RemoteError)) and error.recorded is not None:
        return error.recorded
    return type(error).__name__, brief(error)


def hint_of(error: BaseException) -> str | None:
    """Advice about a failure, for events."""
    return brief(NoesiumError(error.hint)) if isinstance(error, NoesiumError) and error.hint else None


class CheckpointError(KernelError):
    """A run cannot be restored from its journal."""


class MigrationError(KernelError):
    """An open run cannot be moved to a new version of its graph, or not yet: nothing was written."""


class ApprovalExpiredError(KernelError):
    """Nobody answered a question before its deadline, and the step declares no default."""


class StateError(KernelError):
    """A graph's state or delta cannot be recorded; the message names the path in it."""


class ReplayDivergenceError(KernelError):
    """A node did not do what its run's journal records."""


class StrictModeError(KernelError):
    """A run in STRICT mode did something that the mode forbids (RFC-1001 §12.3)."""


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
    """An effect failed: a person decided so, or its error has a class that is not known here (`RemoteError`).

    `effect_id` names it on the log.
    """

    def __init__(self, message: str, *, effect_id: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.effect_id = effect_id


class RemoteError(EffectFailedError):
    """An effect failed with an error whose class the agent's code does not name.

    `recorded` is the name of that class and the error's message, `error_class` the name with its module,
    `module:qualified.name`: texts from the log.
    """

    def __init__(
        self, message: str, *, effect_id: str, recorded: tuple[str, str], error_class: str | None
    ) -> None:
        super().__init__(message, effect_id=effect_id)
        self.recorded = recorded
        self.error_class = error_class


class OutcomeUnknownError(NoesiumError):
    """Raised by the function of an effect that cannot tell whether the effect was done.

    An external effect is then of unknown outcome, as if its process had died: a person decides.
    """


class RunError(NoesiumError):
    """Errors about one run."""


class RunNotFoundError(RunError):
    """There is no run with this id on this log."""


class InputDiffersError(RunError):
    """The run with this idempotency key has another input."""


class RunStrandedError(RunError):
    """The run is open, but no worker can continue it; `reason` is the journal's."""

    def __init__(self, message: str, *, reason: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.reason = reason


class RunEndedError(RunError):
    """The run has ended already: it takes no more messages."""


class ApprovalError(RunError):
    """No open question of the run takes this answer: none is open, several are, or not from here."""


class ApprovalClosedError(ApprovalError):
    """The question was answered already, or its deadline has passed."""


class RunFailedError(RunError):
    """The run ended with an error; the message is the run's own."""


class DeadlineExceededError(RunFailedError):
    """The run had not ended by its command's deadline, or a call of another agent by its own."""


class RunCancelledError(RunError):
    """The run was cancelled."""


class EffectDecisionError(RunError):
    """This effect needs no decision, or does not allow this decision."""


class RunTimeoutError(RunError):
    """No outcome within the caller's timeout; the run itself continues."""

    retriable = True


class AgentError(NoesiumError):
    """Errors about agents as programs."""


class AgentLoadError(AgentError):
    """An agent's module cannot be imported, or holds no agent."""


class SubagentError(AgentError):
    """A command-line sub-agent did not do what it was asked for."""


class SubagentStartError(SubagentError):
    """The program of a sub-agent cannot be started, or has failed too often to be started again."""


class SubagentBusyError(SubagentError):
    """Too many calls wait for a sub-agent already: nothing was sent to it."""

    retriable = True


class SubagentTimeoutError(SubagentError):
    """A sub-agent did not answer in time; it was killed, and may have done what it was asked for."""


class SubagentExitedError(SubagentError):
    """A sub-agent ended before it answered; it may have done what it was asked for."""


class SubagentProtocolError(SubagentError):
    """A sub-agent printed what is no answer to the request; it was killed, and may have done its work."""


class SubagentAnswerError(SubagentError):
    """A sub-agent answered with an error; the message is its own."""


class SubagentStateError(SubagentError):
    """The state of a sub-agent does not allow what was asked of its adapter."""


class ErasureError(NoesiumError):
    """A data subject cannot be erased now, or something of it would remain readable."""


class AgentMemoryError(NoesiumError):
    """Memory cannot be read or written (RFC-1001's MemoryError; Python has one itself)."""


class MemoryScopeError(AgentMemoryError):
    """This is no scope of memory, or it belongs to another agent, run or session."""


class GoalError(NoesiumError):
    """A goal of a run cannot be changed like this, or there is no such goal."""


class ProjectionError(NoesiumError):
    """A projection cannot be folded, stored or read."""


class ProjectionNotFoundError(ProjectionError):
    """There is no state of a projection of this name or version."""


class ProjectionLoadError(ProjectionError):
    """A projection's module cannot be imported, holds no projection, or its declaration is invalid."""


class StateFileError(ProjectionError):
    """A state file is damaged, foreign or of another projection: it is discarded and rebuilt from the log."""


class RebuildDiffersError(ProjectionError):
    """A rebuilt state differs from the existing one; nothing was replaced."""


class StateBusyError(ProjectionError):
    """Another process writes this state file."""


class StateNotStoredError(ProjectionError):
    """A projection's state contains a value that JSON cannot represent."""


class ImpureProjectionError(ProjectionError):
    """`apply` or `key` is not pure; names event and field."""


class EventHeldError(ProjectionError):
    """The projection stopped at an event that it cannot take; names the position."""


class SequenceGapError(ProjectionError):
    """A run's journal lacks a record; names run, numbers and position."""


class KeyElsewhereError(ProjectionError):
    """A key's state is in another process; `owner` names it: `host/pid`."""

    def __init__(self, message: str, *, owner: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.owner = owner


class SnapshotError(ProjectionError):
    """Pushed states of a projection cannot be stored, found, read or trusted; names the place."""


class PermissionDeniedError(NoesiumError):
    """The policy does not allow what was asked for."""


class CapabilityError(NoesiumError):
    """Capability registry and resolution errors, and failed calls of other agents.

    `error_type` is the type of the provider's error, if the provider answered with one.
    """

    def __init__(self, message: str, *, error_type: str | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.error_type = error_type


class CapabilityNotFoundError(CapabilityError):
    """No matching capability found; `considered` says of each offer that came near why it was passed over.

    `denied`: somebody offers it, but not to the roles and scopes of this run.
    """

    def __init__(
        self, message: str, *, considered: Sequence[str] = (), denied: bool = False, hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.considered = tuple(considered)
        self.denied = denied


class CapabilityInputError(CapabilityError):
    """The arguments of a call are not what its provider takes; the message names the field."""


class CapabilityOutputError(CapabilityError):
    """The result of a call is not what the capability promises; the message names the field."""


class CallLimitError(CapabilityError):
    """A call between agents is too deep in its tree, one too many of its run, or leads back in a cycle."""


class ModelError(NoesiumError):
    """A call of a language model failed; `kind` is the class of the failure, as in the events."""

    kind: ClassVar[str] = "error"
    charged: ClassVar[bool] = False
    """Whether the provider may have charged for the call."""


class ModelRateLimitError(ModelError):
    """The provider takes no more calls now; `retry_after`: it wants to be asked again then, in seconds."""

    retriable = True
    kind = "rate_limit"

    def __init__(self, message: str, *, retry_after: float | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.retry_after = retry_after


class ModelOutageError(ModelError):
    """The provider does not answer, or says that it is not well."""

    retriable = True
    kind = "outage"


class ModelTimeoutError(ModelError):
    """The provider had not answered within the call's time limit."""

    retriable = True
    kind = "timeout"
    charged = True


class ModelContextError(ModelError):
    """The prompt is longer than the model takes."""

    kind = "context"


class ModelRefusalError(ModelError):
    """The model, or a filter of its provider, refused to answer."""

    kind = "refusal"


class ModelAnswerError(ModelError):
    """The answer is broken off, is no answer, or does not have the form that was asked for."""

    kind = "answer"
    charged = True


class ModelAccessError(ModelError):
    """The provider does not know the key, the model or the address, or does not take a setting."""

    kind = "access"


class BudgetExceededError(ModelError):
    """The call would exceed the budget of its run, and was not made."""

    kind = "budget"


class ModelTooDearError(BudgetExceededError):
    """The same, where the budget says `degrade`: a cheaper model may be asked instead."""


class ScheduleError(NoesiumError):
    """There is no schedule of this name, or there is one already."""


class ToolError(NoesiumError):
    """A tool cannot be used, or a call of one failed (RFC-2004)."""


class ToolNotFoundError(ToolError):
    """The agent has no tool of this name."""


class ToolInputError(ToolError):
    """A tool does not take these arguments; the message names the field. Nothing was called."""


class ToolPermissionError(ToolError):
    """A call was refused before it began.

    `reason` is the kind of the refusal: `permission`, `mode`, `rule`, `approval`, `definition` or
    `provenance`.
    """

    def __init__(self, message: str, *, reason: str = "permission", hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.reason = reason


class ToolExecutionError(ToolError):
    """A tool says that it failed, or what it gave is no result."""


class ToolTimeoutError(ToolError):
    """A call had not ended within the tool's time limit."""


class ToolServerError(ToolError):
    """A server of tools does not answer, or breaks its protocol."""

    retriable = True


class SandboxError(ToolError):
    """There is no sandbox on this machine, or it cannot be made; nothing was executed."""


class SkillNotFoundError(ToolError):
    """There is no skill of this name, or its folder is not valid."""


class DeadLetterError(NoesiumError):
    """A dead letter is not there, is decided about already, or cannot be sent again."""


class RehearsalError(NoesiumError):
    """The test kit cannot do what the test asks."""


class ScriptEndedError(RehearsalError):
    """A scripted model, effect or capability was called more often than the script has answers."""
