"""Everything the offline engine says, in English and in Chinese."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

Language: TypeAlias = Literal["en", "zh"]

PHRASES: Final[dict[str, tuple[str, str]]] = {
    "who": (
        "I am Sevenfold's offline engine: fixed rules, no language model behind them.",
        "我是 Sevenfold 的离线引擎：只有固定的规则，背后没有语言模型。",
    ),
    "can_quote": (
        "I can quote what was said and read in this conversation.",
        "我可以引用这次对话中说过和读过的内容。",
    ),
    "can_call": ("When asked plainly, I can also {verbs}.", "如果说得直白，我还可以：{verbs}。"),
    "strange_tools": (
        "None of the tools this request offers is one I know, so I cannot read files or run anything.",
        "这次请求提供的工具我都不认识，所以我不能读文件，也不能运行命令。",
    ),
    "no_tools": (
        "This request offers no tools, so I cannot read files or run anything.",
        "这次请求没有提供任何工具，所以我不能读文件，也不能运行命令。",
    ),
    "connect": (
        "To talk to a model, set `ANTHROPIC_API_KEY` and choose one with `--model NAME`; for any "
        "OpenAI-compatible or local server (vLLM, Ollama, llama.cpp), set `OPENAI_BASE_URL` and use "
        "`--model openai:NAME`.",
        "要与模型对话，请设置 `ANTHROPIC_API_KEY`，并用 `--model NAME` 选择模型；"
        "兼容 OpenAI 的服务或本地服务（vLLM、Ollama、llama.cpp）"
        "请设置 `OPENAI_BASE_URL`，并使用 `--model openai:NAME`。",
    ),
    "limits": (
        "(I am the offline engine: rules without a language model. “What can you do?” lists what I can.)",
        "（我是离线引擎：只有规则，没有语言模型。问“你会什么？”可以看到我能做的事。）",
    ),
    "nothing_found": (
        "I found nothing about “{what}” in this conversation.",
        "在这次对话里，我没有找到与“{what}”有关的内容。",
    ),
    "no_rule": ("I have no rule for “{what}”.", "我没有处理“{what}”的规则。"),
    "too_long": (
        "The message that begins “{what}” is too long to be taken as a request; ask about it in another.",
        "以“{what}”开头的消息太长，不能当作请求；请另外发一条消息来问。",
    ),
    "no_images": (
        "I cannot see pictures or documents; I only work with text.",
        "我看不到图片和文档，只能处理文字。",
    ),
    "nothing_asked": ("Nothing was asked yet.", "还没有收到任何请求。"),
    "which_command": (
        "“{what}” does not say which command to run: write it as run `COMMAND`.",
        "“{what}”没有说明要运行哪条命令：请写成 运行 `命令`。",
    ),
    "which_content": (
        "“{what}” does not say what the file is to hold: give the text in quotes or in a fenced block.",
        "“{what}”没有说明文件的内容：请用引号或代码块给出文字。",
    ),
    "cannot_compose": (
        "I can only write text that is given word for word, and “{what}” describes it: "
        "put the text in quotes or in a fenced block.",
        "我只能逐字写入给出的文字，而“{what}”只是描述：请用引号或代码块给出原文。",
    ),
    "which_file": (
        "“{what}” does not say which file is meant, and none was spoken of before.",
        "“{what}”没有说明是哪个文件，之前也没有提到过文件。",
    ),
    "no_web": ("I cannot search the web: I have no network.", "我不能搜索网络：我不联网。"),
    "too_often": (
        "I made the same call twice and will not make it again for one request: {what}.",
        "同一个调用我已经做了两次，不会为同一个请求再做：{what}。",
    ),
    "no_tool": (
        "I cannot do this here: {what} needs the tool {tool}, which this request does not offer.",
        "这里做不到：{what} 需要工具 {tool}，而这次请求没有提供它。",
    ),
    "not_done": ("Not done because of this: {what}.", "因此没有执行：{what}。"),
    "too_many": (
        "That is more than I do for one request, so I left out: {what}.",
        "这超出了我为一个请求所做的步数，所以没有执行：{what}。",
    ),
    "kept": (
        "I will keep this in view for the rest of this conversation: “{what}”. "
        "It was not written to any memory file.",
        "在这次对话中我会一直看到这一点：“{what}”。它没有写入任何记忆文件。",
    ),
    "heard": (
        "I have this in view now: “{what}”. Ask me about it at any time.",
        "我已经看到：“{what}”。随时可以问我。",
    ),
    "hello": ("Hello.", "你好。"),
    "welcome": ("You're welcome.", "不客气。"),
    "nothing_left": ("Nothing is left to continue.", "没有可以继续的内容了。"),
    "no_directive": (
        "The offline engine has no rule for directives of the kind “{kind}” (id {id}); nothing was done.",
        "离线引擎没有处理“{kind}”类指令的规则（编号 {id}）；什么也没有做。",
    ),
    "quote": ("{where}: “{text}”", "{where}：“{text}”"),
    "also": ("Also, {where}: “{text}”", "另外，{where}：“{text}”"),
    "earlier": ("Earlier, {where}: “{text}”", "更早的时候，{where}：“{text}”"),
    "from_user": ("you said", "你说过"),
    "from_model": ("I said", "我说过"),
    "from_tool": ("in the output of {label}", "在 {label} 的输出中"),
    "from_memory": ("in a recalled memory{label}", "在一条回忆起的记忆{label}中"),
    "from_context": ("in earlier context", "在之前的上下文中"),
    "from_piped": ("in what was piped in", "在管道输入的内容中"),
    "piped": ("Piped in: {lines}.", "管道输入：{lines}。"),
    "doing": ("{doing}.", "{doing}。"),
    "doing_Read": ("Reading {what}", "正在读取 {what}"),
    "doing_Write": ("Writing {what}", "正在写入 {what}"),
    "doing_Edit": ("Editing {what}", "正在修改 {what}"),
    "doing_Bash": ("Running {what}", "正在运行 {what}"),
    "doing_Grep": ("Searching for {what}", "正在查找 {what}"),
    "doing_Glob": ("Looking for files {what}", "正在查找文件 {what}"),
    "doing_Agent": ("Handing on {what}", "正在交给代理 {what}"),
    "doing_SendMessage": ("Writing to {what}", "正在发消息给 {what}"),
    "doing_other": ("Calling {what}", "正在调用 {what}"),
    "can_Read": ("read files (“read FILE”)", "读文件（“读取 文件”）"),
    "can_Write": ('write them (“write "TEXT" to FILE”)', '写文件（“把 "文字" 写入 文件”）'),
    "can_Edit": ("edit them (“replace A with B in FILE”)", "改文件（“把 文件 中的 A 替换为 B”）"),
    "can_Bash": ("run commands (“run `CMD`”)", "运行命令（“运行 `命令`”）"),
    "can_Grep": ("search (“find X in DIR”)", "搜索（“在 目录 中查找 X”）"),
    "can_Glob": ("list files (“list *.py files”)", "列出文件（“列出文件”）"),
    "can_Agent": (
        "hand work to others (“ask an agent to X”, “in the background, X”, “fork: X”)",
        "把事情交给别人（“让代理X”、“在后台X”、“分叉：X”）",
    ),
    "can_SendMessage": ("write to them (“tell NAME that X”)", "给他们发消息（“告诉 名字：X”）"),
    "done_Agent": ("Agent {what} has answered.", "代理 {what} 已回答。"),
    "begun_Agent": ("Agent {what} has begun.", "代理 {what} 已开始。"),
    "done_SendMessage": ("I wrote to {what}.", "已发消息给 {what}。"),
    "letter": ("{who} says: {text}", "{who} 说：{text}"),
    "agent_done": ("Agent {who} found: {text}", "代理 {who} 的结果：{text}"),
    "agent_failed": ("Agent {who} failed: {text}", "代理 {who} 失败：{text}"),
    "agent_stopped": ("Agent {who} was stopped: {text}", "代理 {who} 被停止：{text}"),
    "agent_idle": ("Agent {who} waits; it said last: {text}", "代理 {who} 在等待；最后说：{text}"),
    "from_peer": ("{label} wrote", "{label} 写道"),
    "from_agent": ("agent {label} reported", "代理 {label} 报告"),
    "done_Read": ("Read {what}: {lines}.", "已读取 {what}：{lines}。"),
    "done_Write": ("Wrote {what}.", "已写入 {what}。"),
    "done_forgotten": ("I have removed this from memory: {what}.", "已从记忆中删除：{what}。"),
    "nothing_to_forget": (
        "I found no memory about “{what}”; `sevenfold memory list` shows what is remembered.",
        "我没有找到关于“{what}”的记忆；`sevenfold memory list` 会列出所有记忆。",
    ),
    "which_memory": (
        "Several memories are about this, so I removed none: {what}. Name the one you mean.",
        "有几条记忆都与此有关，所以我一条也没有删除：{what}。请说明是哪一条。",
    ),
    "done_memory": ("I have saved this to memory: {what}.", "已存入记忆：{what}。"),
    "done_Edit": ("Edited {what}.", "已修改 {what}。"),
    "done_Bash": ("Ran {what}: {lines} of output.", "已运行 {what}：输出 {lines}。"),
    "done_Bash_silent": ("Ran {what}: no output.", "已运行 {what}：没有输出。"),
    "done_Grep": ("Searched for {what}: {lines} found.", "已查找 {what}：找到 {lines}。"),
    "done_Glob": ("Looked for files {what}: {lines}.", "已查找文件 {what}：{lines}。"),
    "no_matches": ("No matches for {what}.", "没有找到 {what}。"),
    "done": ("{what} answered: {lines}.", "{what} 的结果：{lines}。"),
    "unanswered": ("{what} has no result in view.", "{what} 的结果不在当前视图中。"),
    "failed": ("{what} failed: {why}", "{what} 失败：{why}"),
    "failed_with": ("{what} failed with exit code {code}.", "{what} 失败，退出码 {code}。"),
    "one_line": ("1 line", "1 行"),
    "some_lines": ("{n} lines", "{n} 行"),
    "some_of_lines": ("{n} of {all} lines", "共 {all} 行中的 {n} 行"),
    "begins": ("It begins:", "开头如下："),
    "more_calls": ("… and {n} more calls.", "……还有 {n} 个调用。"),
    "and": (" and ", " 和 "),
}


def format_phrase(language: Language, key: str, **words: object) -> str:
    """One phrase, with its words filled in. Braces in the words are left as they are."""
    return PHRASES[key][0 if language == "en" else 1].format(**words)


def join_phrases(language: Language, parts: list[str]) -> str:
    comma = ", " if language == "en" else "、"
    if len(parts) < 2:
        return "".join(parts)
    return comma.join(parts[:-1]) + format_phrase(language, "and") + parts[-1]
