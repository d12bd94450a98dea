"""Client: starts, finds and follows runs from any program; only the log connects it to the workers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from noesium_stream.capabilities.version import in_range
from noesium_stream.client.conversation import Conversation
from noesium_stream.client.generations import GenerationInfo, generation_infos, grow
from noesium_stream.client.run import Run
from noesium_stream.client.shared.answers import SharedAnswers
from noesium_stream.client.shared.tail import shared_tails
from noesium_stream.client.views.approvals import Approval
from noesium_stream.client.views.goals import RunTree, all_goals
from noesium_stream.client.views.nested_approvals import waiting_questions
from noesium_stream.client.views.run_list.run_list import OPEN, WAITING, RunList, is_status
from noesium_stream.client.views.run_reader import Since
from noesium_stream.client.views.runs import RunInfo
from noesium_stream.client.views.unresolved_effects import UnresolvedEffect, open_ledgers, unresolved_effects
from noesium_stream.client.views.where import Conditions, condition_of
from noesium_stream.client.views.where_expression import ANY_RUN, Expression
from noesium_stream.client.views.workers import OwnedPartition, owned_partitions
from noesium_stream.clock import Clock, SystemClock, derived_id, to_ms, to_rfc3339
from noesium_stream.config import load_config
from noesium_stream.durations import Duration, in_seconds
from noesium_stream.errors import ConfigError, LogForbiddenError, RunNotFoundError, TopicNotFoundError
from noesium_stream.event.domain_event import DomainEvent, root_event
from noesium_stream.event.envelope import AgentRef
from noesium_stream.event.payload.value import to_json
from noesium_stream.event.rules.agent_calls import FAIRNESS_KEY
from noesium_stream.event.rules.attributes import AttributeValue, checked_attributes
from noesium_stream.event.sealing.seal import SUBJECT
from noesium_stream.event.standard import ForkRef, RunRequested
from noesium_stream.event.trust.budget import Budget
from noesium_stream.event.trust.grants import limits_of
from noesium_stream.log.generations import Generation, generations
from noesium_stream.log.open import open_log
from noesium_stream.log.port import EventLog, Position, TopicPartition
from noesium_stream.log.topics import partition_of

if TYPE_CHECKING:
    from noesium_stream.client.views.run_index import RunIndex
    from noesium_stream.memory import MemoryManager

CLIENT_TYPE: Final = "client"
_INDEX: Final = "index"
"""The folder of the index projection, whose modules are imported if there is one."""
KNOWN_S: Final = 5.0
"""How long a client remembers the newest generation of an agent type, in seconds."""


class Client:
    """Client of a log for programs that start and follow runs.

    Args:
        log: an open log (it stays open), or a URL (the context manager opens and closes it); None takes the
            configured log.
        agent_id: permanent id of this program; idempotency keys are separate for each id.
        clock: source of time and ids.
        index: folder in which projections keep their states of this log on this machine. Lists of runs are
            kept there, and the next one reads later records alone; with the state of `noesium project index`
            a run is found without reading all journals. The answers are the same.

    Use it as an async context manager.
    """

    def __init__(
        self,
        log: EventLog | str | None = None,
        *,
        agent_id: str = CLIENT_TYPE,
        clock: Clock | None = None,
        index: Path | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._url = log if isinstance(log, str) else None
        self._given = None if log is None or isinstance(log, str) else log
        self._log: EventLog | None = self._given
        self._folder = index
        self._published: set[type[DomainEvent]] = set()
        self._generations = SharedAnswers[Generation](self._clock.monotonic, KNOWN_S)
        self._stream = SharedAnswers[Mapping[int, int] | None](self._clock.monotonic, KNOWN_S)
        self._producer = AgentRef(agent_id, CLIENT_TYPE, "local", self._clock.uuid7())

    async def __aenter__(self) -> Self:
        if self._log is None:
            self._log = await open_log(self._url, clock=self._clock)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._given is None and self._log is not None:
            await shared_tails(self._log).close()
            await self._log.close()
            self._log = None

    @property
    def log(self) -> EventLog:
        """The log; if a URL was given, only inside the context manager."""
        if self._log is None:
            raise RuntimeError("use the client as an async context manager")
        return self._log

    async def start(
        self,
        agent_type: str,
        input: Mapping[str, Any],
        *,
        idempotency_key: str | None = None,
        ttl: Duration | None = None,
        fork: ForkRef | None = None,
        fairness_key: str | None = None,
        deadline: Duration | datetime | None = None,
        version: str | None = None,
        capability: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        permissions: Collection[str] | None = None,
        mode: str | None = None,
        budget: Budget | None = None,
        attributes: Mapping[str, AttributeValue] | None = None,
        subject: str | Sequence[str] | None = None,
    ) -> Run:
        """Start a run of an agent type with `input`; return as soon as the command is on the log.

        With an idempotency key the run's id is derived from this client's agent id, `agent_type` and the key.
        A repeated command then refers to the same run and gives its result, even if the input differs
        (`Run.check_input` refuses that). With `fork` the run branches off another one (see
        `client.operate.fork.fork`). Waiting commands start in turns, one of each `fairness_key`; the
        default key is the client's agent id.

        `deadline` is a duration from now or a point in time. A run that has not ended by then is ended: its
        effects are compensated, and `Run.result` raises `DeadlineExceededError`. Runs that it calls have the
        same deadline. A command that has waited on the log longer than its `ttl` is not started. Durations
        are a `timedelta`, or a number of seconds.

        `version` is a range of the agent's versions, such as `^2` or `>=1.2 <2`. The run starts with a
        version in the range, and is deferred until a worker carries one.

        `capability` is the id of one of the agent's capabilities, for an agent that offers several.
        `metadata` are further fields of the command's metadata, JSON values by name.

        `permissions` and `mode` limit what the agent's tools may do in this run, and in the runs that it
        calls, to these permissions (`fs:read`, `fs:write:reports/**`) and to the mode `ask`, `plan`, `act` or
        `auto`. They never give what the agent has not.

        `budget` limits what the run may spend on models, with the runs that it calls; what happens at the
        limit is what the agent, or its policy, says.

        `subject` is the person whom the run is about (`user:42`), or several: all that it records, and what
        it sends to others, is sealed with their keys and can be erased (see the guide on memory).

        `attributes` say what the run is about, so that `list_runs(where=...)` finds it: texts, numbers,
        booleans and aware datetimes by name. Its steps may set others (`Step.set_attributes`).

        Raises:
            StateError: the input has no JSON form.
            ConfigError: `agent_type` is not a valid agent type, the deadline is not in the future,
                `version` is not a valid range, or a permission, the mode or an attribute is not valid.
            RecordTooLargeError, LogUnavailableError
        """
        if version is not None:
            in_range("0.0.0", version)
        log = self.log
        run_id = self._clock.uuid7()
        if idempotency_key is not None:
            run_id = self.run_id_of(agent_type, idempotency_key)
        about = {} if subject is None else {SUBJECT: subject if isinstance(subject, str) else list(subject)}
        requested = RunRequested(
            run_id=run_id,
            agent_type=agent_type,
            input=to_json(dict(input), "input"),
            fork=fork,
            deadline_ms=self._moment_ms(deadline),
            agent_version=version,
            capability_id=capability,
            limits=limits_of(permissions, mode),
            budget=None if budget is None else budget.limits,
            attributes=checked_attributes(attributes or {}) or None,
        )
        envelope = root_event(
            requested,
            self._producer,
            self._clock,
            correlation_id=run_id,
            partition_key=run_id,
            idempotency_key=idempotency_key,
            ttl_ms=None if ttl is None else _ttl_ms(ttl),
            metadata={
                **(metadata or {}),
                "to": agent_type,
                **about,
                **({} if fairness_key is None else {FAIRNESS_KEY: fairness_key}),
            },
        )
        newest = await self._newest(agent_type)
        if idempotency_key is not None:
            # The run may have started long ago in an earlier generation, whose owner knows it then.
            await log.append([envelope])
            return Run(log, agent_type, run_id, self._producer, self._clock, about=about)
        place = TopicPartition(newest.journal, partition_of(run_id, newest.partitions))
        since = Since(newest, {place.partition: await shared_tails(log).end(log, place)})
        pieces_since = await self._end_of_stream()
        await log.append([envelope], topic=newest.inbox)
        return Run(
            log,
            agent_type,
            run_id,
            self._producer,
            self._clock,
            since=since,
            pieces_since=pieces_since,
            about=about,
        )

    async def start_conversation(
        self, agent_type: str, *, user: str, title: str | None = None, **options: Any
    ) -> Conversation:
        """Begin a conversation with an agent that people talk to (RFC-1002).

            conversation = await client.start_conversation("assistant", user="ada")
            turn = await conversation.process_user_message("My name is Ada.")

        Args:
            agent_type: the agent's.
            user: whose conversation it is, and whose memory the agent uses: `user:NAME`.
            title: what it is about.
            options: those of `start`.

        Raises:
            ConfigError, RecordTooLargeError, LogUnavailableError: as `start`.
        """
        input = {"user": user} if title is None else {"user": user, "title": title}
        run = await self.start(agent_type, input, **options)
        return Conversation(run, run.since)

    async def conversation(self, run_id: str) -> Conversation:
        """Go on with a conversation, by the id of its run or a prefix of it; what was said is in its `view`.

        Raises:
            RunNotFoundError: there is no such run.
        """
        found = await self.get_run(run_id)
        run = Run(
            self.log,
            found.agent_type,
            found.id,
            self._producer,
            self._clock,
            pieces_since=await self._end_of_stream(),
        )
        conversation = Conversation(run, found.since)
        await conversation.refresh()
        if not conversation.view.ended:
            await conversation.read_sent()
        return conversation

    def memory(self, scope: str, *, home: Path | None = None) -> MemoryManager:
        """What is remembered in a scope, such as `user:ada` or `agent:desk` (RFC-0004 §5).

        `home` is where this machine keeps states; None: the configured folder.

        Raises:
            MemoryScopeError: it is no scope.
        """
        from noesium_stream.memory import memory_of  # noqa: PLC0415 - imports the kernel

        place = home or load_config().home
        return memory_of(self.log, place, self._producer, scope, clock=self._clock)

    async def _end_of_stream(self) -> Mapping[int, int] | None:
        """Return where pieces of new runs come; a slightly old answer does no harm. None: not known."""

        async def ask() -> Mapping[int, int] | None:
            try:
                return await self.log.end(self.log.topology.stream)
            except TopicNotFoundError:
                return {}  # they begin at its beginning, once it is made
            except LogForbiddenError:
                return None  # a program that only starts runs need not read pieces

        return await self._stream.get("", ask)

    def run_id_of(self, agent_type: str, idempotency_key: str) -> str:
        """Return the id of the run that this client starts with this key, or has started."""
        return derived_id("run", self._producer.agent_id, agent_type, idempotency_key)

    async def _newest(self, agent_type: str) -> Generation:
        """Return the generation for new runs; a slightly old answer does no harm."""

        async def ask() -> Generation:
            return (await generations(self.log, agent_type))[-1]

        return await self._generations.get(agent_type, ask)

    def _moment_ms(self, deadline: Duration | datetime | None) -> int | None:
        if deadline is None:
            return None
        now_ms = self._clock.now_ms()
        if not isinstance(deadline, datetime):
            moment_ms = now_ms + round(in_seconds(deadline, "deadline") * 1000)
        elif deadline.tzinfo is None:
            raise ConfigError(f"The deadline {deadline} has no time zone.", hint="Give one: tzinfo=UTC.")
        else:
            moment_ms = to_ms(deadline)
        if moment_ms <= now_ms:
            raise ConfigError(f"The deadline {to_rfc3339(moment_ms)} has passed already.")
        return moment_ms

    def _past_ms(self, since: Duration | datetime) -> int:
        if not isinstance(since, datetime):
            return self._clock.now_ms() - round(in_seconds(since, "since") * 1000)
        if since.tzinfo is None:
            raise ConfigError(f"The time {since} has no time zone.", hint="Give one: tzinfo=UTC.")
        return to_ms(since)

    async def publish(
        self, event: DomainEvent, *, key: str | None = None, idempotency_key: str | None = None
    ) -> Position:
        """Append an event to the topic of its domain, `events.DOMAIN`; return its position.

        Its class need not be registered: this call adds it to `log.catalogue`. Events of one `key` (the
        partition key) stay in order; events without a key have no order. Each call appends a new event.

        Raises:
            ConfigError: the class has no type, or the log has another schema for this type and version.
            EventValidationError, RecordTooLargeError, LogFullError, LogUnavailableError
            CommitUnknownError: the event was sent and not acknowledged.
        """
        kind = type(event)
        if kind not in self._published:
            self.log.catalogue.register(kind)
            self._published.add(kind)
        return await self.log.publish(
            root_event(event, self._producer, self._clock, partition_key=key, idempotency_key=idempotency_key)
        )

    async def get_run(self, run_id: str) -> Run:
        """Find a run by its id or a unique prefix of it; `TYPE:ID` finds a run of this agent type.

        Raises:
            RunNotFoundError: no run matches, or several do.
        """
        agent_type, colon, rest = run_id.rpartition(":")
        if colon:
            known = agent_type in await self.agent_types()
            listed = await RunList(self.log, [agent_type]).read() if known else []
            run_id = rest
        else:
            indexed = await self._indexed_run(run_id)
            if indexed is not None:
                return indexed
            listed = await RunList(self.log, await self.agent_types()).read()
        found = [info for info in listed if info.run_id.startswith(run_id)]
        exact = [info for info in found if info.run_id == run_id]
        if exact:
            found = exact
        if not found:
            whose = f" of {agent_type}" if colon else ""
            raise RunNotFoundError(
                f"There is no run {run_id}{whose} on {self.log.url}.",
                hint="`noesium runs` lists those there are.",
            )
        if len(exact) > 1:
            # Older releases derived the id from the client and its key alone.
            types = sorted(info.agent_type for info in exact)
            raise RunNotFoundError(
                f"Runs of {', '.join(types)} have the id {run_id}.",
                hint="Say whose: " + " or ".join(f"{kind}:{run_id}" for kind in types),
            )
        if len(found) > 1:
            ids = ", ".join(info.run_id for info in found[:5])
            raise RunNotFoundError(
                f"{len(found)} runs begin with {run_id}: {ids}.", hint="Give more of the id."
            )
        return self.run_handle(found[0].agent_type, found[0].run_id)

    def run_handle(self, agent_type: str, run_id: str, *, since: Since | None = None) -> Run:
        """Make the handle of a run that is known to exist, and not below `since`, without reading the log."""
        return Run(self.log, agent_type, run_id, self._producer, self._clock, since=since, index=self._index)

    @property
    def _index(self) -> RunIndex | None:
        if self._folder is None or not (self._folder / _INDEX).exists():
            return None
        from noesium_stream.client.views.run_index import RunIndex  # noqa: PLC0415 - imports projections

        return RunIndex(self.log, self._folder)

    async def _indexed_run(self, run_id: str) -> Run | None:
        """Find a run by a unique prefix, by the index and the later records; None: the index cannot tell."""
        index = self._index
        if index is None:
            return None
        found, rest = await index.runs(run_id)
        for info in await RunList(self.log, await self.agent_types()).read(rest):
            if info.run_id.startswith(run_id):
                found.add((info.agent_type, info.run_id))
        exact = {(kind, key) for kind, key in found if key == run_id}
        return self.run_handle(*next(iter(exact or found))) if len(exact or found) == 1 else None

    async def list_runs(
        self,
        *,
        agent_type: str | None = None,
        status: str | None = None,
        since: Duration | datetime | None = None,
        where: Conditions | Expression | None = None,
        delegated: bool = True,
        limit: int | None = None,
    ) -> list[RunInfo]:
        """List the runs on this log, newest first.

        Args:
            agent_type: only runs of this agent type.
            status: only runs with this status. `waiting` also selects requested runs that wait for their
                turn; see `RunInfo.waits_for`.
            since: only runs that were asked for in this time up to now, or since then.
            where: only runs that fulfil this condition: `customer = 7 and status = open`. Names are search
                attributes, fields of the input (`order.country`), and `agent`, `version`, `status`, `parent`,
                `by` (who asked for it), `fairness_key`, `requested`, `started`, `ended`, `error`, `schedule`,
                `run`. A mapping of names to values selects the runs that have all of them.
            delegated: whether to list runs that other runs have called, too.
            limit: how many at most.

        Raises:
            ConfigError: `since` is not a duration, or has no time zone; or `where` is no condition.
            LogUnavailableError
        """
        from_ms = None if since is None else self._past_ms(since)
        types = [agent_type] if agent_type else await self.agent_types()
        runs = RunList(self.log, types, where, self._folder)
        found = [
            run
            for run in await runs.read()
            if (from_ms is None or run.requested_ms >= from_ms) and (delegated or run.parent_run_id is None)
        ]
        found.sort(key=lambda run: (run.requested_ms, run.run_id), reverse=True)
        if status is None:
            found = found[:limit]
            await runs.add_waits(found)
            return found
        if status in (*OPEN, WAITING):
            await runs.add_waits(found)
        return [run for run in found if is_status(run, status)][:limit]

    async def goals(self, *, agent_type: str | None = None) -> Sequence[RunTree]:
        """The goals of all runs that have some; `Run.goals` has those of one.

        Raises `LogUnavailableError`.
        """
        return await all_goals(self.log, [agent_type] if agent_type else await self.agent_types())

    async def unresolved_effects(self) -> Sequence[UnresolvedEffect]:
        """List the effects of all runs that wait for a person's decision, oldest first."""
        found: Sequence[UnresolvedEffect] = []
        for kind in await self.agent_types():
            for ledger in (await open_ledgers(self.log, kind)).values():
                found = [*found, *unresolved_effects(ledger, kind)]
        return sorted(found, key=lambda effect: (effect.since_ms, effect.effect_id))

    async def approvals(
        self, *, agent_type: str | None = None, where: Conditions | Expression | None = None
    ) -> Sequence[Approval]:
        """List the questions of runs that wait for people's answers, oldest first.

        With `where` only those of runs that fulfil this condition; see `list_runs`. `Approval.path` says
        in whose tree a run stands that was called by another one; `Run.questions` lists those of one tree.
        """
        condition = condition_of(where)
        known = await self.agent_types()
        waiting = await waiting_questions(self.log, known, agent_type)
        if condition == ANY_RUN or not waiting:
            return waiting
        types = [agent_type] if agent_type else known
        listed = RunList(self.log, types, condition, self._folder)
        runs = {(run.agent_type, run.run_id) for run in await listed.read()}
        return [question for question in waiting if (question.agent_type, question.run_id) in runs]

    async def workers(self, *, agent_type: str | None = None) -> Sequence[OwnedPartition]:
        """List the partitions of all agents with owner and status, by agent type and partition.

        Raises `LogUnavailableError`.
        """
        types = await self.agent_types() if agent_type is None else [agent_type]
        return await owned_partitions(self.log, self._clock, types)

    async def grow(self, agent_type: str, partitions: int) -> Generation:
        """Start a new generation of an agent type's topics; see `noesium_stream.client.generations.grow`."""
        generation = await grow(self.log, agent_type, partitions, self._clock, self._producer)
        self._generations.forget(agent_type)
        return generation

    async def generations(self, *, agent_type: str | None = None) -> Sequence[GenerationInfo]:
        """List the generations of the agents' topics with their open runs, by agent type and number.

        Raises `LogUnavailableError`.
        """
        types = await self.agent_types() if agent_type is None else [agent_type]
        return await generation_infos(self.log, types)

    async def agent_types(self) -> Sequence[str]:
        """List the agent types that have topics on this log, by name."""
        prefix = f"{self.log.topology.namespace}.agent."
        names = [topic.name for topic in await self.log.topics()]
        return sorted({name.removeprefix(prefix).split(".")[0] for name in names if name.startswith(prefix)})


def _ttl_ms(ttl: Duration) -> int:
    """Milliseconds, as the envelope has them; at least one."""
    return max(1, round(in_seconds(ttl, "ttl", positive=True) * 1000))
