"""What the annotations of nodes and of what undoes take for a time."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from noesium_stream.errors import KernelError
from noesium_stream.kernel import kernel_compensation, kernel_node
from noesium_stream.kernel.decorators import compensation_meta


@pytest.mark.parametrize(("timeout", "seconds"), [(0.5, 0.5), (2, 2.0), (timedelta(minutes=1), 60.0)])
def test_a_timeout_is_a_timedelta_or_a_number_of_seconds(timeout: Any, seconds: float) -> None:
    def node(state: Any) -> None: ...

    annotated: Any = kernel_node(timeout=timeout)(node)
    assert annotated._kernel_meta.timeout_s == seconds
    assert compensation_meta(kernel_compensation(timeout=timeout)(node)).timeout == timedelta(seconds=seconds)


@pytest.mark.parametrize("timeout", [0, -1, True, "5s", timedelta(0), float("nan")])
@pytest.mark.parametrize("annotation", [kernel_node, kernel_compensation])
def test_a_timeout_that_is_no_time_is_refused(annotation: Any, timeout: Any) -> None:
    with pytest.raises(KernelError, match=f"{annotation.__name__} was given timeout=") as refused:
        annotation(timeout=timeout)
    assert refused.value.hint is not None
    assert "timedelta" in refused.value.hint
