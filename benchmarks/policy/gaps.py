"""How long users of recorded sessions were silent between a reply and what they said next.

python -m benchmarks.policy.gaps [FOLDER] [--write]

FOLDER holds session files (default: ../shared/data/sessions). Every second file is read, in the order of
their names: the others are left for measuring what was built on the first. `--write` puts the numbers into
`gaps.toml`, where the pre-cold layer begins with them until it knows its own user.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from benchmarks.policy.samples import SESSIONS, halves, session_files
from sevenfold.core.transcript import Reply
from sevenfold.layers.shared.idle_gaps import EDGES, PRIOR, QUICKEST, GapCounts, GapForecast
from sevenfold.recordings.claude_code import read_session
from sevenfold.recordings.recorded_session import RecordedEvent

HEAD: Final = """\
# How long users of recorded sessions were silent between a reply and what they said next: so many gaps
# up to so many seconds, and how often the session ended there. It is what the pre-cold layer expects of a
# user whose own gaps it does not know yet.
#
# Written by `python -m benchmarks.policy.gaps --write` from {files} real Claude Code sessions (every second
# of those in ../shared/data/sessions: entireio/cli, MIT) with {gaps} gaps.
"""


def gaps_of(entries: Iterable[RecordedEvent]) -> Iterator[float]:
    """The seconds from each reply that ended a turn to what the user typed next."""
    replied: float | None = None
    for said in entries:
        message = said.message
        if isinstance(said.what, Reply):
            if not said.made_up and not said.failed:
                replied = None if said.what.message.tool_uses else said.at
        elif message is not None and replied is not None and typed(said):
            yield said.at - replied
            replied = None


def typed(said: RecordedEvent) -> bool:
    """Whether a person wrote it to the model: no result, no command, no notice of the tool's own."""
    message = said.message
    if message is None or message.role != "user" or said.meta or message.results:
        return False
    return not message.text.lstrip().startswith(("<", "[Request interrupted"))


def collected(paths: Sequence[Path]) -> GapCounts:
    """All gaps of these sessions. One in which nobody came back says nothing about coming back."""
    gaps = GapCounts()
    for path in paths:
        entries = read_session(path).entries
        found = [gap for gap in gaps_of(entries) if gap >= QUICKEST]
        for gap in found:
            gaps = gaps.after(gap)
        if found:
            gaps = gaps.leaving()
    return gaps


def as_toml(gaps: GapCounts, files: int) -> str:
    lines = [f"{edge} = {n:.0f}" for edge, n in zip(EDGES, gaps.counts, strict=True)]
    head = HEAD.format(files=files, gaps=f"{sum(gaps.counts):.0f}")
    return f"{head}\nleft = {gaps.left:.0f}\n\n[gaps]\n" + "\n".join(lines) + "\n"


def summary(gaps: GapCounts) -> str:
    """What follows for a prefix that lives five minutes, looked at after four and a half."""
    silence = GapForecast(gaps, 270)
    spans = ((270, 300), (300, 570), (570, 813), (813, 3_600), (3_600, 86_400))
    lines = [f"silent for 270 s, of {gaps.seen:.0f} times:"]
    lines += [f"  back {a}-{b} s: {silence.back_between(a, b):.0%}" for a, b in spans]
    return "\n".join([*lines, f"  never: {silence.still(86_400):.0%}"])


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", nargs="?", type=Path, default=SESSIONS)
    parser.add_argument("--write", action="store_true", help=f"write {PRIOR.name}")
    options = parser.parse_args()
    paths, _ = halves(session_files(options.folder))
    if not paths:
        print(f"{options.folder} holds no session files: name another folder", file=sys.stderr)
        return 2
    gaps = collected(paths)
    text = as_toml(gaps, len(paths))
    if options.write:
        PRIOR.write_text(text, encoding="utf-8")
    print(text)
    print(summary(gaps))
    return 0


if __name__ == "__main__":
    sys.exit(main())
