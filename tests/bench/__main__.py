"""`python -m tests.bench GROUP`: log, kernel, projection, worker, prompt, delegation, registry, tools…"""

from __future__ import annotations

import sys

if sys.argv[1:2] == ["answers"]:
    from tests.bench.answers.command import main as answers

    raise SystemExit(answers(sys.argv[2:]))

if sys.argv[1:2] == ["peers"]:
    from tests.bench.peers.command import main as peers

    raise SystemExit(peers(sys.argv[2:]))

from tests.bench.command import main

raise SystemExit(main())
