"""The assignment of partitions: even, sticky, the same for everybody."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from noesium_stream.log.embedded.group import assign
from noesium_stream.log.port import TopicPartition

TOPIC = "t"
PARTITIONS = [TopicPartition(TOPIC, number) for number in range(12)]


def test_a_new_member_gets_its_share_and_nothing_else_moves() -> None:
    before = assign(dict.fromkeys(["a", "b"], frozenset({TOPIC})), PARTITIONS, {})
    after = assign(dict.fromkeys(["a", "b", "c"], frozenset({TOPIC})), PARTITIONS, before)
    assert sorted([list(after.values()).count(member) for member in "abc"]) == [4, 4, 4]
    assert all(after[tp] in (before[tp], "c") for tp in PARTITIONS)


def test_what_a_member_held_that_is_gone_is_shared_out() -> None:
    before = assign(dict.fromkeys(["a", "b", "c"], frozenset({TOPIC})), PARTITIONS, {})
    after = assign(dict.fromkeys(["a", "b"], frozenset({TOPIC})), PARTITIONS, before)
    assert sorted([list(after.values()).count(member) for member in "ab"]) == [6, 6]
    assert all(after[tp] == before[tp] for tp in PARTITIONS if before[tp] != "c")


members = st.dictionaries(
    st.sampled_from("abcdef"), st.frozensets(st.sampled_from("tuv"), min_size=1), max_size=5
)
owned = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from("tuv"), st.integers(0, 5)), st.sampled_from("abcdefgh")
)
counts = st.fixed_dictionaries({topic: st.integers(0, 6) for topic in "tuv"})


@given(members, owned, counts)
def test_every_partition_that_somebody_reads_has_one_reader_and_shares_are_even(
    members: dict[str, frozenset[str]], owners: dict[TopicPartition, str], counts: dict[str, int]
) -> None:
    partitions = [TopicPartition(topic, number) for topic, count in counts.items() for number in range(count)]
    target = assign(members, partitions, owners)
    wanted = {tp for tp in partitions if any(tp.topic in topics for topics in members.values())}
    assert set(target) == wanted
    assert all(tp.topic in members[member] for tp, member in target.items())
    if len(set(members.values())) == 1:
        shares = [list(target.values()).count(member) for member in members]
        assert max(shares) - min(shares) <= 1
    assert assign(members, partitions, target) == target, "what is settled stays"
    shuffled = dict(sorted(members.items(), reverse=True))
    assert assign(shuffled, partitions[::-1], owners) == target
