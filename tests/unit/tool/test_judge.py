"""The judgement of a call: what denies comes first, then what asks, then what allows."""

from __future__ import annotations

from typing import Any

import pytest

from noesium_stream.errors import ConfigError
from noesium_stream.event.standard import Grant, SideEffectClass
from noesium_stream.event.trust.policy import Policy
from noesium_stream.tool import AtomicTool, Mode
from noesium_stream.tool.judge import judge, rules_for
from noesium_stream.tool.verdict import Allowed, Ask, Denied

CLASS = "Add it to `permissions` of the agent's class: a policy never adds to these."
POLICY = "Add it to grant in [agents.clerk] of the policy."
CLASS_OR_POLICY = "`permissions` of the agent's class, or in grant of [agents.clerk] of a policy."


def tool(
    *permissions: str, effects: SideEffectClass = SideEffectClass.EXTERNAL, name: str = "act"
) -> AtomicTool:
    return AtomicTool(name, "", {"type": "object"}, permissions=permissions, side_effect_class=effects)


def judged(
    one: AtomicTool,
    arguments: dict[str, Any] | None = None,
    *,
    permissions: tuple[str, ...] | None = ("fs:write:reports/**", "net:outbound:*.example.com"),
    mode: str = Mode.AUTO,
    policy: dict[str, Any] | None = None,
    grant: Grant | None = None,
    labels: dict[str, tuple[str, ...]] | None = None,
) -> Any:
    found = None if policy is None else Policy.model_validate({"agents": {"clerk": policy}})
    return judge(one, arguments or {}, rules_for(found, "clerk", permissions, mode, grant), labels or {})


def limited(*permissions: str, mode: str | None = None) -> Grant:
    return Grant(principal="ada", roles=None, scopes=None, permissions=list(permissions), mode=mode)


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("reports/a.txt", True),
        ("reports/b/c.txt", True),
        ("reports/../keys/a", False),
        ("/etc/shadow", False),
        ("report", False),
        ("reports\x00/a", False),
    ],
)
def test_a_path_is_within_the_grant_or_refused(path: str, allowed: bool) -> None:
    verdict = judged(tool("fs:write:{path}"), {"path": path})
    assert isinstance(verdict, Allowed if allowed else Denied)


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("https://api.example.com/a", True),
        ("https://API.EXAMPLE.COM:8443/a", True),
        ("https://example.com.evil.org/", False),
        ("https://evil.org/?u=api.example.com", False),
        ("https://api.example.com@evil.org/", False),
        ("https://evil.org\\@api.example.com/", False),
        ("no url", False),
    ],
)
def test_a_host_is_within_the_grant_or_refused(url: str, allowed: bool) -> None:
    verdict = judged(tool("net:outbound:{url|host}"), {"url": url})
    assert isinstance(verdict, Allowed if allowed else Denied)


def test_a_missing_argument_needs_the_whole() -> None:
    assert isinstance(judged(tool("fs:write:{path}")), Denied)
    assert isinstance(judged(tool("fs:write:{path}"), permissions=("fs:write",)), Allowed)


@pytest.mark.parametrize(
    ("effects", "need", "mode", "kind"),
    [
        (SideEffectClass.PURE, "net:outbound:a.example.com", Mode.ASK, Allowed),
        (SideEffectClass.IDEMPOTENT, "net:outbound:a.example.com", Mode.ASK, Denied),
        (SideEffectClass.PURE, "fs:write:reports/a", Mode.PLAN, Denied),
        (SideEffectClass.EXTERNAL, "fs:write:reports/a", Mode.ACT, Ask),
        (SideEffectClass.IDEMPOTENT, "fs:write:reports/a", Mode.ACT, Allowed),
        (SideEffectClass.EXTERNAL, "fs:write:reports/a", Mode.AUTO, Allowed),
    ],
)
def test_a_mode_bounds_what_is_done(effects: SideEffectClass, need: str, mode: str, kind: type) -> None:
    assert isinstance(judged(tool(need, effects=effects), mode=mode), kind)


def test_a_policy_grants_and_the_class_and_the_run_only_narrow() -> None:
    write = tool("fs:write:{path}")
    policy = {"grant": ["fs:write:**"]}
    assert isinstance(judged(write, {"path": "reports/a"}, policy=policy), Allowed)
    assert isinstance(judged(write, {"path": "other/a"}, policy=policy), Denied)
    assert isinstance(judged(write, {"path": "other/a"}, policy=policy, permissions=None), Allowed)
    run = limited("fs:write:reports/x/**")
    assert isinstance(judged(write, {"path": "reports/x/a"}, policy=policy, grant=run), Allowed)
    assert isinstance(judged(write, {"path": "reports/a"}, policy=policy, grant=run), Denied)
    assert isinstance(judged(write, {"path": "reports/a"}, grant=limited("fs:write", mode="ask")), Denied)


MANY = tuple(f"pay:order:{number}" for number in range(9))


@pytest.mark.parametrize(
    ("permissions", "agents", "reason", "hint"),
    [
        (("fs:read",), None, "its class has 'fs:read'", CLASS),
        ((), None, "its class has no permission", CLASS),
        (MANY, None, "its class has 'pay:order:0', 'pay:order:1', 'pay:order:2' and 6 more", CLASS),
        (("fs:read",), {"clerk": {"grant": ["mail:send"]}}, "its class has 'fs:read'", CLASS),
        (("fs:read",), {"clerk": {"mode": "act"}}, "its class has 'fs:read'", CLASS),
        (
            ("mail:send",),
            {"clerk": {"grant": ["fs:read"]}},
            "[agents.clerk] of the policy grants 'fs:read'",
            POLICY,
        ),
        (None, {"*": {"grant": []}}, '[agents."*"] of the policy grants nothing', POLICY),
        (None, {"clerk": {}}, "it is granted nothing", f"Name it in {CLASS_OR_POLICY}"),
        (None, None, "it is granted nothing", f"Name it in {CLASS_OR_POLICY}"),
        (
            ("fs:read",),
            {"clerk": {"grant": ["fs:write"]}},
            "its class has 'fs:read', and [agents.clerk] of the policy grants 'fs:write'",
            f"{CLASS} {POLICY}",
        ),
        (("mail:send",), {"baker": {}}, "the policy has no part [agents.clerk]", POLICY),
        (
            ("mail:send",),
            {"baker": {}, "clerc": {"grant": ["mail:send"]}},
            "the policy has no part [agents.clerk]",
            "Did you mean [agents.clerc]? The part has to have the agent's name: [agents.clerk].",
        ),
        (
            ("mail:send",),
            {"*": {"grant": []}, "clerc": {"grant": ["mail:send"]}},
            '[agents."*"] of the policy grants nothing',
            "Did you mean [agents.clerc]? The part has to have the agent's name: [agents.clerk].",
        ),
    ],
)
def test_a_refusal_says_who_has_not_granted_it_and_what_there_is(
    permissions: tuple[str, ...] | None, agents: dict[str, Any] | None, reason: str, hint: str
) -> None:
    policy = None if agents is None else Policy.model_validate({"agents": agents})
    verdict = judge(tool("mail:send"), {}, rules_for(policy, "clerk", permissions, Mode.AUTO))
    assert isinstance(verdict, Denied)
    assert verdict.reason == f"act needs 'mail:send', and clerk is not granted that: {reason}."
    assert verdict.hint == f"{hint} See `noesium guide permission`."


def test_two_patterns_of_which_none_is_within_the_other_are_both_named() -> None:
    verdict = judged(tool("a:b:xy"), permissions=("a:b:x*",), policy={"grant": ["a:b:*y"]})
    assert isinstance(verdict, Denied)
    assert "its class has 'a:b:x*', and [agents.clerk] of the policy grants 'a:b:*y'" in verdict.reason


def test_a_refusal_by_the_run_s_limits_does_not_name_the_policy() -> None:
    verdict = judged(tool("mail:send"), permissions=("mail:send",), grant=limited("fs:read"))
    assert isinstance(verdict, Denied)
    assert verdict.reason == "act needs 'mail:send', and its run is limited to 'fs:read'."
    assert "policy" not in verdict.hint


def test_a_run_that_is_limited_to_nothing_is_said_to_be() -> None:
    verdict = judged(tool("mail:send"), permissions=("mail:send",), grant=limited())
    assert isinstance(verdict, Denied)
    assert verdict.reason == "act needs 'mail:send', and its run is limited to nothing."


def test_a_rule_that_refuses_comes_before_one_that_asks() -> None:
    pay = tool("pay:order", name="pay")
    policy = {
        "grant": ["pay:order"],
        "approve": [{"tool": "pay", "when": "cents > 5000", "by": "role:finance", "minimum": 2}],
        "never": [{"tool": "*", "argument_from": "web"}],
    }
    asked = judged(pay, {"cents": 9000}, permissions=None, policy=policy)
    assert isinstance(asked, Ask)
    assert (asked.approvers, asked.minimum) == (("role:finance",), 2)
    assert isinstance(judged(pay, {"cents": 10}, permissions=None, policy=policy), Allowed)
    assert isinstance(judged(pay, {}, permissions=None, policy=policy), Ask)
    tainted = judged(pay, {"cents": 9000}, permissions=None, policy=policy, labels={"cents": ("web",)})
    assert isinstance(tainted, Denied)
    assert tainted.kind == "provenance"


@pytest.mark.parametrize("when", ["__import__('os')", "lambda: 1", "x" * 2_000, "[1 for _ in x]"])
def test_a_condition_is_no_code(when: str) -> None:
    with pytest.raises((ConfigError, ValueError)):
        Policy.model_validate({"agents": {"clerk": {"approve": [{"tool": "a", "when": when}]}}})


@pytest.mark.parametrize("need", ["shell:execute", "python:execute"])
def test_what_starts_programs_is_granted_all_that_the_agent_may_do(need: str) -> None:
    grants = (need, "fs:read", "env:read:TZ")
    verdict = judged(tool(need), permissions=grants)
    assert isinstance(verdict, Allowed)
    assert verdict.granted == grants


def test_what_a_call_is_granted_is_within_its_kind() -> None:
    verdict = judged(tool("fs:write:{path}"), {"path": "reports/a"})
    assert isinstance(verdict, Allowed)
    assert not any(one.startswith("net:") for one in verdict.granted)
