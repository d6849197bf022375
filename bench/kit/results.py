"""Where results are kept: a JSON line for each, in bench/results/NAME.jsonl."""

import json
import time
from collections.abc import Mapping
from typing import Any, Final

from kit import ROOT

RESULTS: Final = ROOT / "bench" / "results"


def keep_result(name: str, result: Mapping[str, Any]) -> None:
    """Append a result of the benchmark `name`, with the time (UTC) at which it is kept."""
    line = {"time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), **result}
    RESULTS.mkdir(exist_ok=True)
    with (RESULTS / f"{name}.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")
