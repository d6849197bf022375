"""A broker whose file descriptors are used up: in words, and the doctor's rule."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from odradek.model.clock import WallMs
from odradek.model.sentence import Sentence, sentence
from odradek.plan.commands import Caller, clock
from odradek.plan.facts import RECENT_MS, ClusterFacts, Finding, Severity
from odradek.plan.quantities import counted

_NEARLY: Final = 0.9


def exhausted(report: Mapping[str, Any], wall_ms: WallMs) -> str:
    """That connections were refused for want of descriptors, or soon are; "" if not."""
    files = report.get("open_files")
    if files is None:
        return ""
    count, most = files["connections"], files["connections_max"]
    used = f"{count} of the {most} connections for which it has file descriptors are open"
    hosts = ", ".join(f"{host} ({of})" for host, of in files["hosts"])
    used += f"; most are of {hosts}" if hosts else ""
    if files["refused"] and wall_ms - files["last_ms"] <= RECENT_MS:
        return (
            f"it refused {counted(files['refused'], 'connection')} since "
            f"{clock(files['first_ms'], wall_ms)}, the last at {clock(files['last_ms'], wall_ms)}, "
            f"because it had no file descriptors for more; now {used}"
        )
    return f"{used}: further ones are refused soon" if count >= _NEARLY * most else ""


def more_files(broker: int, caller: Caller) -> Sentence:
    """How a broker gets more descriptors."""
    return sentence(
        "close connections that are not used, or raise the limit of open files where broker "
        f"{broker} is started (LimitNOFILE= of its service, or ulimit -n), then ",
        caller.restart(broker),
        "; max.connections.per.ip limits what one host may take",
    )


def _open_files(facts: ClusterFacts) -> Iterator[Finding]:
    for broker, report in sorted(facts.reports.items()):
        why = exhausted(report, facts.wall_ms)
        if why:
            files = report["open_files"]
            is_full = files["connections"] >= files["connections_max"]
            yield Finding(
                Severity.CRITICAL if is_full else Severity.WARNING,
                "open-files",
                f"broker {broker}",
                why,
                more_files(broker, facts.caller),
                broker,
            )


OPEN_FILES_RULES: Final = (_open_files,)
