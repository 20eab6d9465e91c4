"""Requests the offline engine understands in Chinese: the same as in English, one rule an entry."""

from __future__ import annotations

import re
from typing import Final

from msgspec.structs import replace

from sevenfold.offline.english import (
    build_edit,
    build_forget,
    build_inspect,
    build_question,
    build_remember,
    build_write,
)
from sevenfold.offline.language import LITERAL, LexedRequest
from sevenfold.offline.steps import (
    EVERYONE,
    FORK,
    GENERAL,
    TOGETHER,
    AgentOffer,
    AgentTask,
    MessageStep,
    PlanStep,
    UnclearStep,
    compile_rules,
    extract_work,
    find_commands,
    find_file,
    find_files,
    is_file_name,
    make_call_step,
    make_kind_glob,
    make_lines_window,
    make_reads,
    make_search_pattern,
    trim_punctuation,
    widen_pattern,
)

POLITE: Final = re.compile(
    r"(?:(?:请问?|麻烦|帮我|帮忙|你?能不能|你?能否|你能|可不可以|可以|首先|先|现在|然后|接着|随后|再|最后|并且?|给我|你)"
    r"[，,：:\s]*)+"
)
_ASCII_PATH = re.compile(r"[A-Za-z0-9_~./\\*@+-]+")
_PLACE_NOUN = re.compile(r"^(?:文件夹|目录|文件)\s*|\s*(?:文件夹|目录|文件)$")
_EVERYWHERE = re.compile(
    r"(?:整个|这个|当前|本|所有|全部)*(?:工作)?(?:项目|工程|仓库|代码|代码库|目录|文件夹|文件|这里)"
    r"|整个|这个|当前|本|所有|全部|当前工作"
)


def _read(m: re.Match[str], lexed: LexedRequest) -> tuple[PlanStep, ...] | None:
    rest, window = m["rest"], {}
    lines = re.search(r"的?第?\s*(\d+)\s*(?:行)?\s*(?:到|至|-|—)\s*第?\s*(\d+)\s*行", rest)
    top = re.search(r"的?前\s*(\d+)\s*行", rest)
    if found := lines or top:
        window = make_lines_window(found[1] if lines else "1", found[2] if lines else found[1])
        rest = rest[: found.start()] + rest[found.end() :]
    rest = re.sub(r"的?(?:内容|全文)\s*$", "", _PLACE_NOUN.sub("", trim_punctuation(rest)))
    named = find_files(rest, lexed)
    if not named and (path := _ASCII_PATH.match(rest)):
        named = find_files(path[0], lexed)
    return make_reads(named, **window)


def _run(m: re.Match[str], lexed: LexedRequest) -> tuple[PlanStep, ...] | None:
    part = re.sub(r"\s*(?:一下|吧)[。！]?$", "", m["rest"].strip())
    if told := re.match(rf"(?:测试|脚本|命令|单元测试)\s*[：:]?\s*(?={LITERAL}|[!-~])", part):
        part = part[told.end() :]
    elif re.match(r"测试|程序|检查|它|这", part):
        return (UnclearStep(lexed.raw(m[0]), "which_command"),)
    found = [command for command in find_commands(part, lexed) if command]
    return tuple(step for command in found for step in make_call_step("Bash", command=command))


def _run_with(m: re.Match[str], lexed: LexedRequest) -> tuple[PlanStep, ...] | None:
    return make_call_step("Bash", command=lexed.value(trim_punctuation(m["command"])))


def _place(where: str | None, lexed: LexedRequest) -> str | None:
    """The folder or file that was named; None: everywhere."""
    if not where or _EVERYWHERE.fullmatch(where.strip()):
        return None
    return find_file(_PLACE_NOUN.sub("", where.strip()), lexed, loosely=True)


def _find(m: re.Match[str], lexed: LexedRequest) -> tuple[PlanStep, ...] | None:
    where = m.groupdict().get("where")
    what = re.sub(r"^(?:(?:所有的?|全部|包含|单词|字符串|文字|词)\s*)+", "", trim_punctuation(m["what"]))
    if not lexed.alone(what) and is_file_name(what):
        return make_call_step("Glob", pattern=widen_pattern(what), path=_place(where, lexed))
    if not lexed.alone(what) and (files := re.fullmatch(r"(\S*\*\S*?)(?:的?文件)?", what)):
        return make_call_step("Glob", pattern=widen_pattern(files[1]), path=_place(where, lexed))
    scope: dict[str, str] = {}
    if where and (kind := make_kind_glob(re.sub(r"\s*的?文件$", "", where.strip()))):
        scope["glob"] = kind
    elif place := _place(where, lexed):
        scope["path"] = place
    return make_call_step("Grep", pattern=make_search_pattern(what, lexed), output_mode="content", **scope)


def _files_with(m: re.Match[str], lexed: LexedRequest) -> tuple[PlanStep, ...] | None:
    where = _place(m.groupdict().get("where"), lexed)
    pattern = make_search_pattern(m["what"], lexed)
    return make_call_step("Grep", pattern=pattern, output_mode="files_with_matches", path=where)


def _list_kind(m: re.Match[str], lexed: LexedRequest) -> tuple[PlanStep, ...] | None:
    if kind := make_kind_glob(lexed.value(m["kind"])):
        return make_call_step("Glob", pattern=widen_pattern(kind), path=_place(m["where"], lexed))
    return None


def _list(m: re.Match[str], lexed: LexedRequest) -> tuple[PlanStep, ...] | None:
    said = (m["where"] or "").strip()
    if kind := make_kind_glob(lexed.value(said)):
        return make_call_step("Glob", pattern=widen_pattern(kind))
    pattern = "**/*" if re.search(r"所有|全部", m[0]) else "*"
    return make_call_step("Glob", pattern=pattern, path=_place(said, lexed))


def _matching(m: re.Match[str], lexed: LexedRequest) -> tuple[PlanStep, ...] | None:
    return make_call_step("Glob", pattern=widen_pattern(lexed.value(trim_punctuation(m["name"]))))


_SEEK = r"(?:查找|搜索|寻找|查询|搜一下|找一下|找出|找)"
_INSIDE = r"\s*(?:文件|目录|文件夹)?\s*(?:之?中|里面|里|之?内|下面|下)"
_REPLACED = r"\s*(?P<every>全部|都)?\s*(?:替换|修改|更改|改|换)(?:成|为)\s*"

RULES: Final = compile_rules(
    {
        r"(?:总结|概括|说明|解释)\s*(?:一下)?\s*(?:文件)?\s*(?P<file>\S+?)\s*(?:的?内容)?"
        r"[。？?]?$": build_inspect,
        r"(?P<file>\S+?)\s*(?:文件)?(?:里面|里|中)(?:有|写了?|是)?(?:些)?什么(?:内容)?"
        r"[？?]?$": build_inspect,
        r"(?:告诉我|告诉|说明|解释|回答|总结|概括|描述|汇报|说说)": build_question,
        r"(?:记住|记下来?|记得|别忘了?|不要忘记?|牢记|记一下)[，,：:\s]*(?P<text>.+)": build_remember,
        r"(?:忘掉|忘记|忘了)(?:关于|有关)?[，,：:\s]*(?P<text>.+?)(?:的?记忆)?[。！]?$": build_forget,
        rf"(?:把|将)\s*(?P<file>\S{{1,200}}?){_INSIDE}的?\s*(?P<all>所有的?|全部的?)?\s*(?P<old>.+?)"
        rf"{_REPLACED}(?P<new>.+)": build_edit,
        rf"在?\s*(?P<file>\S{{1,200}}?){_INSIDE}\s*[，,]?\s*(?:把|将)\s*(?P<all>所有的?|全部的?)?\s*(?P<old>.+?)"
        rf"{_REPLACED}(?P<new>.+)": build_edit,
        r"(?:把|将)\s*(?P<text>.+?)\s*(?:写入|写到|写进|保存到|保存为|存到|存入|存为)\s*(?:文件)?\s*"
        r"(?P<file>\S+)$": build_write,
        r"(?:写入?|保存)\s*(?P<text>.+?)\s*(?:到|进)\s*(?:文件)?\s*(?P<file>\S+)$": build_write,
        r"(?:写入|写到|保存到|创建|新建|建立|生成)\s*(?:一个)?\s*(?:新?的?文件)?\s*"
        r"(?P<file>[^\s：:，,]+?)\s*(?:[：:，,]\s*|\s+)(?:里面|文件)?(?:内容)?(?:为|是|写上|包含)?\s*[：:]?\s*"
        r"(?P<text>\S.*)$": build_write,
        r"(?:创建|新建|建立)\s*(?:一个)?\s*空?的?(?:文件)?\s*(?P<file>[^\s：:，,。]+)[。！]?$": build_write,
        rf"(?:在\s*(?P<where>.+?){_INSIDE}\s*)?(?:{_SEEK}|列出|哪些文件)\s*(?:所有的?|全部)?\s*"
        r"(?:包含|含有|提到|使用)了?\s*(?P<what>\S.*?)\s*的(?:所有|全部)?文件[。！]?$": _files_with,
        rf"(?:列出|列一下|显示|查看|看看|{_SEEK})\s*(?P<where>.+?){_INSIDE}\s*的?\s*(?:所有的?|全部的?)?\s*"
        rf"(?P<kind>{LITERAL}|[\w.*+#]+)\s*(?:源)?文件[。！]?$": _list_kind,
        rf"在\s*(?P<where>.+?){_INSIDE}\s*(?:查找|搜索|寻找|查询|搜一?下?|找一?下?)\s*"
        r"(?P<what>\S.*)": _find,
        rf"(?:列出|列一下|显示|查看|看看)\s*(?:一下)?\s*(?P<where>.*?)(?:{_INSIDE})?\s*的?\s*(?:所有|全部)?的?\s*"
        r"文件(?:列表)?[。！]?$": _list,
        r"(?:有)?(?:哪些|什么)文件(?:名)?\s*(?:匹配|符合|叫)\s*(?P<name>\S+?)\s*[？?]?$": _matching,
        r"(?:查找|搜索|寻找|搜一下|找一下|找)\s*(?P<what>\S.*)": _find,
        r"用\s*(?P<command>.+?)\s*(?:运行|执行|跑)(?:一下)?\s*(?:单元)?测试[。！]?$": _run_with,
        r"(?:运行|执行|跑一下|跑)\s*(?:一下|命令)?\s*[：:]?\s*(?P<rest>\S.*)": _run,
        r"(?:读取|读一下|读|打开|查看|显示|展示|看一下|看看)\s*(?:一下|文件)?\s*[：:]?\s*"
        r"(?P<rest>\S.*)": _read,
    }
)


_COUNTS: Final = {"两": 2, "二": 2, "三": 3, "四": 4, "五": 5, "六": 6}
_AGENT: Final = r"(?:子?代理|子?智能体|(?:sub-?)?agents?)"
_FORK: Final = r"(?:分叉|forks?)"
_WORD: Final = r"[A-Za-z0-9_:-]+"
_GO: Final = r"(?:\s|[，,：:]|去|来|帮我|帮忙|分别|同时|并行|各自|(?:在)?后台)*"
_POLITE = re.compile(
    r"(?:(?:请问?|麻烦|帮我|帮忙|你?能否|你能|首先|先|现在|然后|接着|再|最后)[，,：:\s]*)+"
)
_SINGLE = re.compile(
    r"(?:(?:让|叫|派|用|启动|创建|要)\s*(?:一个|一名|另一个|另外一个|这个|那个|个)?|(?:一个|另一个))\s*"
    rf"(?:(?:名叫|叫做|叫|名为)\s*(?P<name>{_WORD})\s*的\s*)?(?P<behind>后台)?的?\s*"
    rf"(?P<kind>(?!agent|sub-?agent|fork){_WORD}\s*)?(?P<noun>{_AGENT}|{_FORK}|队友)(?P<go>{_GO})(?P<work>\S.*)",
    re.I,
)
_SEVERAL = re.compile(
    r"(?:让|叫|派|用|启动)?\s*(?P<count>[两二三四五六几多]|\d{1,2})(?:个|名)\s*(?P<behind>后台)?的?\s*"
    rf"(?P<kind>(?!agent|sub-?agent|fork){_WORD}\s*)?(?P<noun>{_AGENT}|{_FORK})(?P<go>{_GO})(?P<work>.*)",
    re.I,
)
_FORKED = re.compile(
    rf"{_FORK}(?:一下|自己|这个对话|当前对话|出去)*\s*(?:[：:，,]|并|来|去)\s*(?P<work>\S.*)", re.I
)
_AHEAD = re.compile(r"(?:在后台[，,：:]?|后台[，,：:])\s*(?=\S)")
_NAME: Final = r"(?P<to>[A-Za-z*][A-Za-z0-9_.:@/-]*|大家|所有人|所有代理|全体)"
_SENDING: Final = tuple(
    re.compile(pattern)
    for pattern in (
        rf"(?:告诉|通知|转告)\s*{_NAME}\s*(?:[：:，,]|说|要)?\s*(?P<text>\S.*)",
        rf"(?:给|向)\s*{_NAME}\s*(?:发送?|捎|写)(?:一?[条封个])?(?:消息|信|话)?\s*[：:，,]?\s*(?P<text>\S.*)",
        rf"(?:发送?|写)(?:一?[条封个])?(?:消息|信)?给\s*{_NAME}\s*[：:，,]\s*(?P<text>\S.*)",
    )
)
_ASK = re.compile(
    r"(?:让|叫|问|请)\s*(?P<to>[A-Za-z][A-Za-z0-9_.:-]*)(?:\s|[：:，,]|去|来)*(?P<text>[^\s：:，,].*)"
)
_ALL: Final = ("大家", "所有人", "所有代理", "全体", EVERYONE)


def parse_handover(
    piece: str, lexed: LexedRequest, offer: AgentOffer
) -> list[AgentTask] | MessageStep | None:
    """The work that this sentence gives to others, if any. A list without work announces what follows."""
    said = piece.strip()
    if said.endswith(("?", "？", "吗", "呢")):
        return None
    if ahead := _POLITE.match(said):
        said = said[ahead.end() :]
    background = _AHEAD.match(said)
    said = said[background.end() :] if background else said
    if not background and offer.messages and (sent := _sent(said, lexed, offer)):
        return sent
    if not offer.agents:
        return None
    found = _work(said, lexed, offer)
    if found is None and background:
        found = [AgentTask(extract_work(said, lexed))]
    return [replace(one, background=True) for one in found] if found and background else found


def _work(said: str, lexed: LexedRequest, offer: AgentOffer) -> list[AgentTask] | None:
    if m := _SEVERAL.match(said):
        parts = [part for part in re.split(r"[;；]", m["work"]) if part.strip(" 。")]
        if not parts:
            return [] if m["go"].rstrip().endswith((":", "：")) else None
        many = _COUNTS.get(m["count"]) or (int(m["count"]) if m["count"].isdigit() else 2)
        alone = not m["work"].rstrip().endswith("；")  # which ends a piece: more parts follow in the next
        parts = parts * min(many, TOGETHER) if alone and len(parts) == 1 else parts
        return [_handed(part, m, lexed, offer) for part in parts]
    if m := _FORKED.match(said):
        return [AgentTask(extract_work(m["work"], lexed), FORK)]
    if m := _SINGLE.match(said):
        handed = _handed(m["work"], m, lexed, offer)
        return [replace(handed, name=m["name"], teammate=m["noun"] == "队友")]
    if (m := _ASK.match(said)) and (kind := offer.kind(m["to"])) not in (None, FORK):
        return [AgentTask(extract_work(m["text"], lexed), str(kind))]
    return None


def _handed(part: str, m: re.Match[str], lexed: LexedRequest, offer: AgentOffer) -> AgentTask:
    fork = re.fullmatch(_FORK, m["noun"], re.I)
    kind = FORK if fork else offer.kind(m["kind"] or "") or GENERAL
    behind = bool(m["behind"]) or "后台" in m["go"]
    return AgentTask(extract_work(part, lexed), kind, background=behind)


def _sent(said: str, lexed: LexedRequest, offer: AgentOffer) -> MessageStep | None:
    for pattern in _SENDING:
        if m := pattern.match(said):
            to = EVERYONE if m["to"] in _ALL else offer.name(m["to"]) or m["to"]
            return MessageStep(to, extract_work(m["text"], lexed))
    if (m := _ASK.match(said)) and (name := offer.name(m["to"])):
        return MessageStep(name, extract_work(m["text"], lexed))
    return None
