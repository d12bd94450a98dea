r"""The researcher as an agent: plan, gather, weigh, perhaps once more, answer (RFC-1002).

plan -> gather -> weigh -> answer             in the documents' own words
            ^       |  \-> write              by a model, from the same passages
            +-refine+                         once, if the evidence is thin
"""

from __future__ import annotations

import asyncio
import operator
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langgraph.graph import END, START, StateGraph
from pydantic import BaseModel, Field

from agents.documents.listing import checked_root, corpus_id
from agents.researcher.answering import answer_from, nothing_found, with_unread
from agents.researcher.pages import addresses_in, without_addresses
from agents.researcher.planning import plan, refined_queries
from agents.researcher.toolkit import ResearcherToolkit
from agents.researcher.weighing import probability, weigh
from agents.researcher.writing import answer_of_model, prompt_for
from noesium_stream.agent import AgentContext, BaseResearcher
from noesium_stream.errors import ConfigError, ToolError, brief
from noesium_stream.kernel import current_step, kernel_node

PASSAGES_PER_QUERY = 12


class ResearcherOptions(BaseModel):
    """What the researcher can be told."""

    docs: Path | None = Field(
        default=None,
        description="Folder with the documents. By default the librarian's, on this machine `.`.",
    )
    model: str | None = Field(
        default=None, description="Let this model write the answer, as PROVIDER:NAME. Default: quotes alone."
    )
    remember: bool = Field(
        default=False, description="Remember answers with their passages, and say what was answered before."
    )
    web: bool = Field(
        default=False, description="Read the web pages that the question names, beside the documents."
    )


def merge_corpus(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """What is known of the corpus: its size, and the counts of all words that were looked up."""
    return {**old, **new, "counts": {**old.get("counts", {}), **new.get("counts", {})}}


def by_query(queries: list[str], passages: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """What was found for each of `queries`, and then for further ones, best first."""
    found: dict[str, list[dict[str, Any]]] = {query: [] for query in queries}
    for passage in passages:
        found.setdefault(passage["query"], []).append(passage)
    return list(found.values())


class ResearchState(TypedDict, total=False):
    """The state of a run; all of it is JSON."""

    question: str
    corpus: str | None
    plan: dict[str, Any]
    queries: list[str]
    passages: Annotated[list[dict[str, Any]], operator.add]
    about: Annotated[dict[str, Any], merge_corpus]
    weighed: dict[str, Any]
    rounds: int
    earlier: dict[str, Any] | None
    outcome: dict[str, Any]


class Researcher(BaseResearcher):
    """Answers a question from a folder of documents, with citations, or says that they do not say."""

    agent_type = "researcher"
    version = "2.0.0"
    Options = ResearcherOptions
    permissions = ("net:outbound",)
    companions = ("agents.librarian",)

    def __init__(self, options: BaseModel, context: AgentContext) -> None:
        super().__init__(options, context)
        self.options = ResearcherOptions.model_validate(options.model_dump())
        if self.options.web:
            self.tools = (ResearcherToolkit(),)  # type: ignore[misc]

    @classmethod
    def input_from_question(cls, question: str, options: BaseModel) -> dict[str, Any]:
        """The question, the corpus that `--docs` names, and with `--web` the pages that the question names.

        Raises:
            ConfigError: the question is empty, or DIR is no folder.
        """
        _require_question(question)
        docs = getattr(options, "docs", None)
        corpus = corpus_id(checked_root(docs)) if docs is not None else None
        asked = {"question": question.strip(), "corpus": corpus}
        pages = addresses_in(question) if getattr(options, "web", False) else []
        return {**asked, "pages": pages} if pages else asked

    def initial_state(self, input: dict[str, Any], capability_id: str | None) -> dict[str, Any]:
        """Begin with `{question, corpus}`, and `pages` where pages are to be read.

        Raises:
            ConfigError: the question is empty, or the pages are no addresses.
        """
        question = input.get("question")
        _require_question(question)
        begun = {"question": question, "corpus": input.get("corpus"), "rounds": 0}
        pages = input.get("pages")
        if not pages:
            return begun
        if not isinstance(pages, list) or addresses_in(" ".join(map(str, pages))) != pages:
            raise ConfigError(
                "`pages` is no list of addresses of web pages.", hint="Give up to three, each once: https://…"
            )
        # Within the plan, and no field of its own: the graph of runs that are on logs stays the same.
        return {**begun, "plan": {"pages": pages}}

    def result(self, state: dict[str, Any]) -> Any:
        """`{"answer", "citations", "sources", "outcome", "probability", "found"}`; see `answer_from`."""
        return state["outcome"]

    def get_state_class(self) -> type[Any]:
        """See `ResearchState`."""
        return ResearchState

    def _build_graph(self) -> StateGraph[Any, Any, Any, Any]:
        graph = StateGraph(ResearchState)
        graph.add_node("plan", self.plan)
        graph.add_node("gather", self.gather)
        graph.add_node("weigh", self.weigh)
        graph.add_node("refine", self.refine)
        graph.add_node("answer", self.answer)
        graph.add_node("write", self.write)
        graph.add_edge(START, "plan")
        graph.add_edge("plan", "gather")
        graph.add_edge("gather", "weigh")
        graph.add_conditional_edges("weigh", self.next_after_weigh, ["refine", "answer", "write"])
        graph.add_conditional_edges("refine", self.next_after_refine, ["gather", "answer", "write"])
        graph.add_edge("answer", END)
        graph.add_edge("write", END)
        return graph

    async def plan(self, state: ResearchState) -> dict[str, Any]:
        """What is asked for, the first queries, and what was answered before."""
        pages = state.get("plan", {}).get("pages")
        if pages:
            made = {**plan(without_addresses(state["question"])), "pages": pages}
        else:
            made = plan(state["question"])
        planned = {"plan": made, "queries": made["queries"]}
        if not self.options.remember:
            return planned
        return {**planned, "earlier": await self.findings.recall(state["question"], state.get("corpus"))}

    async def gather(self, state: ResearchState) -> dict[str, Any]:
        """Ask whoever offers `corpus.search`, all queries at once."""
        corpus = state.get("corpus")
        answers = await asyncio.gather(*(self.look_up(query, corpus) for query in state["queries"]))
        about: dict[str, Any] = {"passages": 0, "documents": 0, "counts": {}}
        for answer in answers:
            size = {"passages": answer["passage_count"], "documents": answer["documents"]}
            about = merge_corpus(about, {**size, "counts": answer["counts"]})
        found = [[answer["passages"]] for answer in answers]
        pages = state["plan"].get("pages", [])
        if pages and state["queries"]:
            about["unread"] = await self._read(pages, state["queries"], found, about["counts"])
        passages = [
            {**passage, "query": query}
            for query, places in zip(state["queries"], found, strict=True)
            for place in sorted(places, key=probability, reverse=True)
            for passage in place
        ]
        return {"passages": passages, "about": about}

    async def _read(
        self,
        pages: list[str],
        queries: list[str],
        found: list[list[list[dict[str, Any]]]],
        counts: dict[str, int],
    ) -> dict[str, str]:
        """Add what pages have for each query to `found`, and to `counts`; return why a page was not read."""
        if not self.tools:
            return dict.fromkeys(pages, "this researcher was started without --web")
        unread: dict[str, str] = {}
        for url in pages:
            asked = {"url": url, "queries": queries, "limit": PASSAGES_PER_QUERY}
            try:
                page = await current_step().tool("search_page", **asked)
            except ToolError as error:
                unread[url] = brief(error)
                continue
            for places, answer in zip(found, page["found"], strict=True):
                places.append(answer["passages"])
                for word, count in answer["counts"].items():
                    counts[word] = counts.get(word, 0) + count
        return unread

    async def look_up(self, query: str, corpus: str | None) -> dict[str, Any]:
        """The output of `corpus.search` for one query."""
        asked = {"query": query, "limit": PASSAGES_PER_QUERY, "corpus": corpus}
        found: dict[str, Any] = await current_step().invoke("corpus.search", asked, version="^2")
        return found

    def weigh(self, state: ResearchState) -> dict[str, Any]:
        """Judge what was gathered."""
        found = by_query(state["plan"]["queries"], state.get("passages", []))
        return {"weighed": weigh(state["plan"]["queries"], found), "rounds": state["rounds"] + 1}

    def refine(self, state: ResearchState) -> dict[str, Any]:
        """The queries with their names taken apart; none if there are no such names."""
        return {"queries": refined_queries(state["plan"])}

    async def answer(self, state: ResearchState) -> dict[str, Any]:
        """Answer in quotes."""
        return await self._found(state, answer_from(state["plan"], state["weighed"], state["about"]))

    @kernel_node(deterministic=False, entropy_sources=["model"])
    async def write(self, state: ResearchState) -> dict[str, Any]:
        """Let the model answer from the passages; it is not asked where there are none worth it."""
        made, weighed, about = state["plan"], state["weighed"], state["about"]
        if self.llm is None or weighed["outcome"] == "nothing":
            return {"outcome": with_unread(nothing_found(made, weighed, about), about)}
        text = await self.llm.complete(prompt_for(state["question"], weighed["evidence"]))
        return await self._found(state, answer_of_model(text, made, weighed, about))

    async def _found(self, state: ResearchState, outcome: dict[str, Any]) -> dict[str, Any]:
        """The outcome; with `remember` what was answered before is compared, and a new answer remembered."""
        outcome = with_unread(outcome, state["about"])
        if not self.options.remember:
            return {"outcome": outcome}
        earlier, answer = state.get("earlier"), outcome["answer"]
        same = earlier is not None and earlier["answer"] == answer[: len(earlier["answer"])]
        if outcome["found"] and not same:
            question, corpus = state["question"], state.get("corpus")
            await self.findings.remember(question, answer, outcome["citations"], corpus)
        if earlier is None:
            return {"outcome": outcome}
        before = f"Answered like this on {earlier['since']}."
        if not same:
            before = f"Answered otherwise on {earlier['since']}:\n{earlier['answer']}"
        return {"outcome": {**outcome, "answer": f"{answer}\n\n{before}", "earlier": earlier}}

    def next_after_weigh(self, state: ResearchState) -> str:
        """Once more if the evidence is thin, else to the answer."""
        if state["weighed"]["outcome"] != "answer" and state["rounds"] <= self.max_refinements:
            return "refine"
        return "write" if self.llm is not None else "answer"

    def next_after_refine(self, state: ResearchState) -> str:
        """Gather with the new queries, if there are any."""
        if state["queries"]:
            return "gather"
        return "write" if self.llm is not None else "answer"


def _require_question(question: Any) -> None:
    if not isinstance(question, str) or not any(c.isalnum() for c in question):
        raise ConfigError("The question is empty.", hint="Ask in one sentence, in quotes.")
