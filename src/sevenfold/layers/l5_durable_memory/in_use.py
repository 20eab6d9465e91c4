"""Which tools the model is getting along with, so that nobody explains to it how to use them.

A memory is left out when all of this is so:

    it is a reference                   not feedback, a decision, or a fact about the user
    it is about how to use something    its name or description says usage, syntax, cheat sheet, …
    the model is using that now         among the newest messages a call of it, the last of which worked
    it warns of nothing                 no word of warning in its name, description or text

Whatever is in doubt is shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from sevenfold.facts import call_of
from sevenfold.memory.recalled import Recalled
from sevenfold.messages import ToolUse
from sevenfold.transcript import View

RECENT: Final = 20
"""Messages in which a call counts as now."""
_USAGE: Final = re.compile(
    r"\b(?:usage|how[ -]to(?:[ -]use)?|using|syntax|flags?|options?|arguments?|parameters?|commands?"
    r"|subcommands?|cheat[ -]?sheets?|manual|man pages?|docs|documentation|examples?)\b"
    r"|用法|使用方法|使用说明|怎么用|如何使用|语法|参数|选项|命令|手册|文档|速查|示例",
    re.IGNORECASE,
)
_WARNING: Final = re.compile(
    r"\b(?:warn\w*|gotchas?|caveats?|pitfalls?|beware|careful\w*|caution\w*|danger\w*|never|do not|don'?t"
    r"|must(?:n'?t| not)|cannot|can'?t|avoid\w*|instead of|known (?:issues?|bugs?|problems?)|bugs?|buggy"
    r"|broken|breaks?|fails?|failing|failure|errors?|deprecated|unsafe|wrong\w*|does(?:n'?t| not)"
    r"|only works|workarounds?|important)\b"
    r"|注意|警告|小心|切勿|不要|不能|不得|禁止|避免|陷阱|踩坑|有坑|已知问题|缺陷|报错|出错|失败|弃用|危险|务必",
    re.IGNORECASE,
)
_TOKEN: Final = re.compile(r"[^\W_]+(?:[-_.][^\W_]+)*")
_PARTS: Final = re.compile(r"[-_.]")
_SIMPLE: Final = re.compile(r"&&|\|\||[;|\n]")
_AHEAD: Final = re.compile(r"\s*(?:(?:sudo|env|time|nohup|exec|[A-Za-z_]\w*=\S*)\s+)*")
_PROGRAM: Final = re.compile(r"[^\s'\"$`()<>]+")
_EVERYDAY: Final = frozenset(["cd", "ls", "cat", "echo", "export", "set", "true", "pwd", "mkdir"])
LONGEST_COMMAND: Final = 2_000


def tools_in_use(view: View) -> frozenset[str]:
    """Names of tools, servers and programs that were called lately and worked when called last."""
    worked: dict[str, bool] = {}
    uses: dict[str, ToolUse] = {}
    for at in range(max(0, len(view) - RECENT), len(view)):
        message = view[at].message
        uses.update((use.id, use) for use in message.tool_uses)
        for result in message.results:
            if use := uses.get(result.tool_use_id):
                worked.update((name, not result.is_error) for name in _names(use))
    return frozenset(name for name, well in worked.items() if well)


def explains_what_is_in_use(memory: Recalled, tools: frozenset[str]) -> bool:
    """Whether this only tells the model how to use what it is using already."""
    if memory.type != "reference" or not tools:
        return False
    about = f"{memory.name}\n{memory.description}"
    if not _USAGE.search(about.replace("_", " ")) or tools.isdisjoint(_words(about)):
        return False
    return not _WARNING.search(f"{about}\n{memory.text}")


def _names(use: ToolUse) -> Iterator[str]:
    """A tool by its own name, which is written as it is; servers and programs in small letters."""
    yield use.name
    if use.name.startswith("mcp__"):
        yield from (part.lower() for part in use.name.split("__")[1:] if part)
    call = call_of(use)
    if call.kind == "command":
        yield from _programs(call.about[:LONGEST_COMMAND])


def _programs(command: str) -> Iterator[str]:
    for simple in _SIMPLE.split(command):
        ahead = _AHEAD.match(simple)
        found = _PROGRAM.match(simple, ahead.end() if ahead else 0)
        if found and (name := found[0].rpartition("/")[2].lower()) not in _EVERYDAY:
            yield name


def _words(text: str) -> Iterator[str]:
    """Each word as it is and in small letters; of one with dashes also its parts."""
    for token in _TOKEN.findall(text):
        for word in (token, *_PARTS.split(token)):
            yield word
            yield word.lower()
