"""`python -m tests.bench log | kernel | projection | worker | prompt`: figures, each beside one's own way."""

from __future__ import annotations

from tests.bench.command import main

raise SystemExit(main())
