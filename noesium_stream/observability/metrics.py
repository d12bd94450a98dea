"""The metrics of RFC-1001 §15.2, through OpenTelemetry's API.

Without an OpenTelemetry SDK they cost next to nothing and are dropped; an SDK (the extra `otel`, or a
program's own `MeterProvider`) exports them. Durations are in seconds, according to OpenTelemetry's
conventions. Attributes have few values: never ids of runs, keys or texts.

 - `noesium.events.emitted`: events written to the log (`noesium.log`: kafka, sqlite or memory).
 - `noesium.events.processed`: events processed (`noesium.reader`: worker or projection, `noesium.name`: the
   agent's type or the projection's name).
 - `noesium.kernel.node.duration`: executed attempts of nodes, not replayed ones (`noesium.agent_type`,
   `noesium.node`, `noesium.outcome`: completed or failed).
 - `noesium.projection.rebuild.duration`: whole rebuilds (`noesium.name`).
 - `noesium.capability.resolution.duration`: from the request for a provider to its choice or failure
   (`noesium.capability`, `noesium.outcome`: resolved or unresolved).
 - `noesium.llm.tokens.used`: tokens of a call as reported by the provider (`noesium.model`).
"""

from __future__ import annotations

from opentelemetry.metrics import get_meter

_meter = get_meter("noesium_stream")

events_emitted = _meter.create_counter(
    "noesium.events.emitted", unit="{event}", description="Events that are on the log."
)
events_processed = _meter.create_counter(
    "noesium.events.processed", unit="{event}", description="Events that a worker or a projection dealt with."
)
kernel_node_duration = _meter.create_histogram(
    "noesium.kernel.node.duration", unit="s", description="Execution time of a node's attempt."
)
projection_rebuild_duration = _meter.create_histogram(
    "noesium.projection.rebuild.duration", unit="s", description="Time to rebuild a projection."
)
capability_resolution_duration = _meter.create_histogram(
    "noesium.capability.resolution.duration", unit="s", description="Time to find a capability's provider."
)
llm_tokens_used = _meter.create_counter(
    "noesium.llm.tokens.used", unit="{token}", description="Tokens that models' providers say they used."
)
