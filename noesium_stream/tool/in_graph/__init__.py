"""Tools that LangGraph's own `ToolNode` calls, in the graph of an agent (RFC-2003 §7)."""
