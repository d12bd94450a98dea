"""`python -m tests.bench log | kernel | projection | worker`: figures, each beside what one would write by hand."""

from __future__ import annotations

from tests.bench.command import main

raise SystemExit(main())
