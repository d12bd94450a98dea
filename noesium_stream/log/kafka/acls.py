"""ACLs and users of a Kafka cluster: what each name of a policy needs on the brokers, and nothing more.

`acls_of` is a pure function of the policy; `apply_acls` creates what it returns. A name is the Kafka user of
the same name, unless it is given another. Names with dots end in one, so that `noesium.agent.clerk.` is no
prefix of another agent's topics.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from noesium_stream.event.rules.slices import TREASURER
from noesium_stream.event.trust.policy import ANY, Policy, Rule
from noesium_stream.event.trust.trusted_key import AGENT, ROLE
from noesium_stream.log.kafka.bounded_reader import reader_of
from noesium_stream.log.kafka.errors import translated
from noesium_stream.log.kafka.probe import KAFKA_LOGGER
from noesium_stream.log.kafka.settings import KafkaSettings
from noesium_stream.log.topics import WATCHER, TopicKind, Topology, agent_name

DECIDER: Final = "dead-letters"
"""Id of the writer that decides about dead letters (`noesium_stream.client.operate.dead_letters`)."""

PROJECTIONS: Final = "agent:projections"
"""The name of processes that fold the log, as `noesium project` does."""

_REQUEST_S: Final = 30.0
_ITERATIONS: Final = 8_192
_SEES: Final = ("DESCRIBE", "DESCRIBE_CONFIGS")
_READS: Final = ("READ", *_SEES)
_WRITES: Final = ("WRITE", *_SEES)
_OF_REGISTRY: Final = frozenset({"register"})
"""Rights that need no agent's topics: workers may write to the registry anyway."""


class Acl(NamedTuple):
    """One right on a Kafka cluster.

    Attributes:
        user: the Kafka principal, such as `User:alice`.
        resource: `TOPIC`, `GROUP` or `TRANSACTIONAL_ID`.
        pattern: `LITERAL`: of that name; `PREFIXED`: of all names that begin so.
        name: the name, or its beginning.
        operation: Kafka's name of the operation, such as `READ`.
    """

    user: str
    resource: str
    pattern: str
    name: str
    operation: str


def acls_of(
    policy: Policy,
    topology: Topology,
    *,
    agents: Collection[str] = (),
    users: Mapping[str, str] | None = None,
    create: bool = True,
) -> list[Acl]:
    """The rights that the names of a policy need, in order, each once.

    Args:
        policy: who may ask what of which agents; `agent:TYPE` stands for the workers of a type.
        topology: names of the topics.
        agents: agent types that the policy does not name.
        users: Kafka users by name, where they differ; without `User:`.
        create: whether workers may make the topics of their agents.

    Raises:
        ConfigError: a name is no agent type.
    """
    names = _Names(topology, users or {}, create)
    workers = {*agents, *_agents_in(policy)} - {PROJECTIONS.removeprefix(AGENT)}
    found: list[Acl] = []
    for agent_type in sorted(workers):
        found += names.of_workers(agent_name(agent_type))
    if TREASURER in workers:
        for agent_type in sorted(workers):
            found += names.of_treasurer(agent_type)
    for rule in policy.allow:
        if set(rule.may) <= _OF_REGISTRY:
            continue
        for who in sorted(_members(policy, rule)):
            for agent_type in sorted(workers if ANY in rule.agents else set(rule.agents) & workers):
                found += names.of_caller(who, agent_type, rule)
    if PROJECTIONS in {who for rule in policy.allow for who in rule.who} or PROJECTIONS in names.users:
        found += names.of_projections()
    return sorted(dict.fromkeys(found), key=lambda acl: acl.user)


def apply_acls(settings: KafkaSettings, acls: Iterable[Acl]) -> None:
    """Create ACLs; those that there are stay as they are.

    Raises:
        EventStoreError: no broker answers, it has no authorizer, or this user lacks the right.
    """
    client = AdminClient(settings.confluent(), logger=KAFKA_LOGGER)
    bindings = [_binding(acl) for acl in acls]
    if not bindings:
        return
    for done in client.create_acls(bindings, request_timeout=_REQUEST_S).values():
        try:
            done.result(_REQUEST_S)
        except KafkaException as error:
            raise translated(error, settings.bootstrap, "creating ACLs") from error


class _Names:
    """Makes the ACLs of each kind of name."""

    def __init__(self, topology: Topology, users: Mapping[str, str], create: bool) -> None:
        self.users = users
        self._topology = topology
        self._create = ("CREATE",) if create else ()

    def of_workers(self, agent_type: str) -> Iterator[Acl]:
        """What the workers of an agent type need: they alone may write its journal and join its group."""
        topology, user = self._topology, self._user(f"{AGENT}{agent_type}")
        own = f"{topology.namespace}.agent.{agent_type}."
        yield from _acls(user, "TOPIC", "PREFIXED", own, (*_READS, "WRITE", *self._create))
        for topic in (topology.registry, topology.dlq, topology.heartbeat):
            yield from _acls(user, "TOPIC", "LITERAL", topic, (*_READS, "WRITE", *self._create))
        yield from _acls(user, "TOPIC", "LITERAL", topology.stream, (*_READS, "WRITE", *self._create))
        facts = topology.events("")
        yield from _acls(user, "TOPIC", "PREFIXED", facts, (*_READS, "WRITE", *self._create))
        yield from _acls(user, "GROUP", "LITERAL", self._group(agent_type), ("READ", "DESCRIBE"))
        writer = f"{topology.namespace}.writer.{own}"
        yield from _acls(user, "TRANSACTIONAL_ID", "PREFIXED", writer, ("WRITE", "DESCRIBE"))
        watchers = f"{topology.namespace}.{topology.watchers}"
        yield from _acls(user, "GROUP", "LITERAL", watchers, ("READ", "DESCRIBE"))
        watcher = f"{topology.namespace}.writer.{WATCHER}"
        yield from _acls(user, "TRANSACTIONAL_ID", "LITERAL", watcher, ("WRITE", "DESCRIBE"))
        yield from self._of_tasks(user)
        yield from self._any(user)

    def _of_tasks(self, user: str) -> Iterator[Acl]:
        """What is needed to leave tasks to others, and to take them: which, their agents' code says."""
        space = self._topology.namespace
        for kind in (TopicKind.TASK, TopicKind.TAKEN):
            topics = f"{space}.{kind.value}."
            yield from _acls(user, "TOPIC", "PREFIXED", topics, (*_READS, "WRITE", *self._create))
        yield from _acls(user, "GROUP", "PREFIXED", f"{space}.{space}.tasks.", ("READ", "DESCRIBE"))
        writer = f"{space}.writer.{space}.{TopicKind.TAKEN.value}."
        yield from _acls(user, "TRANSACTIONAL_ID", "PREFIXED", writer, ("WRITE", "DESCRIBE"))

    def of_treasurer(self, agent_type: str) -> Iterator[Acl]:
        """What the treasurer needs to answer runs of an agent type that ask for slices of budgets."""
        inbox = f"{self._topology.namespace}.agent.{agent_type}.inbox"
        yield from _acls(self._user(f"{AGENT}{TREASURER}"), "TOPIC", "PREFIXED", inbox, _WRITES)

    def of_caller(self, who: str, agent_type: str, rule: Rule) -> Iterator[Acl]:
        """What is needed to ask agents of a type for something, and to see what comes of it."""
        topology, user = self._topology, self._user(who)
        agent = f"{topology.namespace}.agent.{agent_type}"
        if who.startswith(AGENT):
            yield from _acls(user, "TOPIC", "PREFIXED", f"{agent}.inbox", _WRITES)
            # A call is answered into the caller's inbox, by the workers of the agent that is called.
            caller = f"{topology.namespace}.{who.replace(AGENT, 'agent.', 1)}.inbox"
            answering = self._user(f"{AGENT}{agent_type}")
            yield from _acls(answering, "TOPIC", "PREFIXED", caller, _WRITES)
            return
        yield from _acls(user, "TOPIC", "PREFIXED", f"{agent}.inbox", (*_READS, "WRITE"))
        yield from _acls(user, "TOPIC", "PREFIXED", f"{agent}.journal", _READS)
        yield from _acls(user, "GROUP", "LITERAL", self._group(agent_type), ("DESCRIBE",))
        for topic in (topology.registry, topology.heartbeat, topology.stream):
            yield from _acls(user, "TOPIC", "LITERAL", topic, _READS)
        if {"grow", ANY} & set(rule.may):
            yield from _acls(user, "TOPIC", "PREFIXED", f"{agent}.", ("CREATE", *_SEES))
        if {"accept", ANY} & set(rule.may):
            yield from _acls(user, "TOPIC", "LITERAL", topology.registry, ("WRITE",))
        if {"redrive", ANY} & set(rule.may):
            yield from _acls(user, "TOPIC", "LITERAL", topology.dlq, (*_READS, "WRITE"))
            decider = f"{topology.namespace}.writer.{DECIDER}"
            yield from _acls(user, "TRANSACTIONAL_ID", "LITERAL", decider, ("WRITE", "DESCRIBE"))
        yield from self._any(user)

    def of_projections(self) -> Iterator[Acl]:
        """What processes need that fold the log."""
        topology, user = self._topology, self._user(PROJECTIONS)
        yield from _acls(user, "TOPIC", "PREFIXED", f"{topology.namespace}.", _READS)
        yield from _acls(user, "TOPIC", "LITERAL", topology.registry, ("WRITE",))
        group = f"{topology.namespace}.{topology.namespace}.projection."
        yield from _acls(user, "GROUP", "PREFIXED", group, ("READ", "DESCRIBE"))
        yield from self._any(user)

    def _any(self, user: str) -> Iterator[Acl]:
        """What every program needs: to read topics at all, and to append to those that it may write."""
        yield from _acls(user, "GROUP", "LITERAL", reader_of(self._topology.registry), ("DESCRIBE",))
        name = f"{self._topology.namespace}.append."
        yield from _acls(user, "TRANSACTIONAL_ID", "PREFIXED", name, ("WRITE", "DESCRIBE"))

    def _group(self, agent_type: str) -> str:
        """The group's name on the brokers: a log puts its namespace before each."""
        return f"{self._topology.namespace}.{self._topology.workers(agent_type)}"

    def _user(self, name: str) -> str:
        return f"User:{self.users.get(name, name)}"


def _acls(user: str, resource: str, pattern: str, name: str, operations: Iterable[str]) -> Iterator[Acl]:
    for operation in operations:
        yield Acl(user, resource, pattern, name, operation)


def _agents_in(policy: Policy) -> set[str]:
    """The agent types that a policy names, as who asks and as who is asked."""
    named = {name for rule in policy.allow for name in rule.agents if name != ANY}
    asking = {who for rule in policy.allow for who in _members(policy, rule)}
    return named | {who.removeprefix(AGENT) for who in asking if who.startswith(AGENT)}


def _members(policy: Policy, rule: Rule) -> set[str]:
    """The names that a rule is about; those of a role are its members in the policy.

    A role that keys alone have names nobody here.
    """
    found: set[str] = set()
    for who in rule.who:
        found |= set(policy.roles.get(who.removeprefix(ROLE), ())) if who.startswith(ROLE) else {who}
    return found


def _binding(acl: Acl) -> AclBinding:
    return AclBinding(
        ResourceType[acl.resource],
        acl.name,
        ResourcePatternType[acl.pattern],
        acl.user,
        "*",
        AclOperation[acl.operation],
        AclPermissionType.ALLOW,
    )


def add_user(settings: KafkaSettings, name: str, password: str) -> None:
    """Let a user in by a password (SCRAM-SHA-512), or change it.

    Raises:
        EventStoreError: no broker answers, or this user lacks the right.
    """
    client = AdminClient(settings.confluent(), logger=KAFKA_LOGGER)
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, _ITERATIONS)
    change = UserScramCredentialUpsertion(name, info, password.encode())
    for done in client.alter_user_scram_credentials([change], request_timeout=_REQUEST_S).values():
        try:
            done.result(_REQUEST_S)
        except KafkaException as error:
            raise translated(error, settings.bootstrap, f"changing the user {name}") from error
