"""The sentences that synthetic memory folders are made of, in English and Chinese.

`{x}` and `{y}` are made-up names, `{n}` and `{m}` numbers, `{p}` and `{q}` other values.
"""

from __future__ import annotations

from typing import Final

import msgspec

from sevenfold.memory.topic_file import Type


class Pair(msgspec.Struct, frozen=True):
    """Two sentences about one name, the second one newer or about something else."""

    type: Type
    first: str
    second: str
    values: str = "number"
    """What `{p}` and `{q}` are filled with."""
    name: str = "{x}"
    """What both memories are named after."""


UNIQUE: Final[dict[Type, tuple[str, ...]]] = {
    "user": (
        "The user worked at {x} for {n} years before this job.",
        "The user's colleague {x} answers questions about tax law.",
        "The user learned Rust at a course by {x} in room {n}.",
        "用户以前在{x}工作了{n}年。",
        "用户的同事{x}懂得税法。",
    ),
    "feedback": (
        "When {x} fails, show its log before anything else.",
        "Ask {x} before changing schema number {n}.",
        "Never squash commits that mention {x}.",
        "提交里提到{x}时不要合并成一个。",
        "改动第{n}号表之前先问{x}。",
    ),
    "project": (
        "{x} needs {n} GB of memory during the import.",
        "Ticket {x}-{n} blocks the migration of the archive.",
        "{x} was chosen over {y} because of its license.",
        "The outage of {x} cost {n} orders.",
        "{x}在导入时需要{n}GB内存。",
        "选择{x}而不是{y}是因为许可证。",
    ),
    "reference": (
        "The dashboards of {x} are at https://{x}.example/d/{n}.",
        "Bugs in {x} are filed in the tracker under component {n}.",
        "{x}的看板在 https://{x}.example/d/{n} 。",
    ),
}
"""Each says something that no other memory says."""

MORE: Final = (
    "{x} also knows the way to room {n}.",
    "Its first customer was {y}, in group {n}.",
    "The spare key for it is {x}-{n}.",
    "备用的编号是{x}-{n}。",
)

CHANGED: Final = (
    Pair("project", "{x} runs on port {p}.", "{x} runs on port {q}."),
    Pair("project", "The deadline for {x} is {p}.", "The deadline for {x} is {q}.", "date"),
    Pair("project", "Deploys of {x} happen on {p}.", "Deploys of {x} happen on {q}.", "day"),
    Pair("project", "The default branch of {x} is {p}.", "The default branch of {x} is {q}.", "word"),
    Pair("project", "{x} is hosted on {p}.", "{x} is hosted on {q}.", "cloud"),
    Pair("project", "The lead for {x} is {p}.", "The lead for {x} is {q}.", "person"),
    Pair("project", "{x} uses {p} for storage.", "{x} uses {q} for storage.", "database"),
    Pair("project", "The timeout of {x} is {p} seconds.", "The timeout of {x} is {q} seconds."),
    Pair("reference", "The office of {x} is in {p}.", "The office of {x} moved to {q}.", "city"),
    Pair("project", "We use {x} for the build.", "We no longer use {x}.", "none"),
    Pair("user", "The user lives in {p}.", "The user lives in {q}.", "city", "home"),
    Pair("project", "{x}的端口是{p}。", "{x}的端口改为{q}。"),
    Pair("project", "{x}的负责人是{p}。", "{x}的负责人现在是{q}。", "person"),
    Pair("project", "{x}的部署日是{p}。", "{x}的部署日是{q}。", "zh_day"),
    # said in other words: by rule this can hardly be found
    Pair("project", "{x} listens on port {p}.", "Port {q} is the one that {x} answers on."),
    Pair("project", "We ship {x} every {p}.", "Releases of {x} were moved to {q}.", "day"),
    Pair("project", "{p} maintains {x}.", "{x} has been handed over to {q}.", "person"),
)
"""The second takes the place of the first when it is newer."""

BOTH_HOLD: Final = (
    Pair("user", "The user likes {p}.", "The user likes {q}.", "music", "taste"),
    Pair("project", "{x} supports {p}.", "{x} supports {q}.", "format"),
    Pair("project", "We use port {p} for {x}.", "We use port {p} for {y}."),
    Pair("project", "The {x} service runs on port {p}.", "The {y} service runs on port {q}."),
    Pair("project", "{x} has tests in tests/{p}.", "{x} has tests in tests/{q}.", "word"),
    Pair("project", "Issue {p} of {x} is about caching.", "Issue {q} of {x} is about caching."),
    Pair("project", "{p} reported a bug in {x}.", "{q} reported a bug in {x}.", "person"),
    Pair("project", "{x} is slow in the morning.", "{x} is written in Go.", "none"),
    Pair("reference", "Docs of {x} are in folder {p}.", "Docs of {y} are in folder {q}.", "word"),
    Pair("feedback", "Use {p} for tests of {x}.", "Use {q} for docs of {x}.", "word"),
    Pair("user", "用户喜欢{p}。", "用户喜欢{q}。", "music", "爱好"),
    Pair("project", "{x}支持{p}格式。", "{x}支持{q}格式。", "format"),
    Pair("project", "{x}服务的端口是{p}。", "{y}服务的端口是{q}。"),
)
"""Two facts, however much alike: neither may go, and the memories stay two unless they share a name."""

DATED: Final = (
    ("The demo of {x} is tomorrow.", 1),
    ("{x} went down yesterday.", -1),
    ("The review of {x} was two days ago.", -2),
    ("{x}的演示在明天。", 1),
    ("{x}昨天停机了。", -1),
    ("{x}后天上线。", 2),
)
"""With the day that is meant, counted from the day it was said."""

OVER: Final = (
    "The merge freeze for {x} begins on {d}.",
    "The deadline for {x} was {d}.",
    "{x}的截止日期是{d}。",
)

VALUES: Final[dict[str, tuple[str, ...]]] = {
    "day": ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday"),
    "zh_day": ("周一", "周二", "周三", "周四", "周五"),
    "word": ("main", "trunk", "stable", "golden", "edge", "amber", "cobalt", "violet"),
    "cloud": ("AWS", "Azure", "Hetzner", "Linode", "Render"),
    "database": ("Postgres", "MySQL", "SQLite", "MongoDB", "Redis"),
    "city": ("Berlin", "Munich", "Lisbon", "Oslo", "Kyoto", "Toronto"),
    "person": ("Ann", "Bob", "Carla", "Dmitri", "Eve", "Farid", "Grace"),
    "music": ("jazz", "techno", "folk", "opera", "blues"),
    "format": ("JSON", "YAML", "TOML", "CSV", "XML"),
    "none": ("", ""),
}
