"""Every client holds a small conversation with the simulator, with a tool call where it has tools."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from clients.conftest import RecordRow, StartProvider, StartProxy
from clients.environments import find_environment, read_environments
from clients.programs import ClientPlace, ClientRun, find_claude_code, find_codex

pytestmark = [pytest.mark.clients, pytest.mark.real]
SCRIPTS = Path(__file__).parent / "conversations"
ANSWER = "It has 21 degrees."


def call_tool(name: str, **arguments: Any) -> list[dict[str, Any]]:
    """A script: one tool call, then the answer."""
    use = {"type": "tool_use", "name": name, "input": arguments}
    return [{"reply": {"text": "Let me look.", "content": [use]}}, {"reply": {"text": ANSWER}}]


def run_python(script: str) -> Callable[[ClientPlace, str, str], ClientRun]:
    """Run a script of ours in the environment of its client."""

    def run(place: ClientPlace, url: str, environment: str) -> ClientRun:
        python = find_environment(environment).python
        return place.run((python, SCRIPTS / script, url), {"LITELLM_LOCAL_MODEL_COST_MAP": "True"})

    return run


def find_version(place: ClientPlace, environment: str) -> str:
    """The version of a client; Claude Code has another one than the package that holds it."""
    if environment == "claude-code":
        return find_claude_code(place).call("--version").out.split()[0]
    return read_environments()[environment].version


def run_claude_code(place: ClientPlace, url: str, _environment: str) -> ClientRun:
    return find_claude_code(place).run("What is the weather in Paris?", url)


def run_codex(place: ClientPlace, url: str, _environment: str) -> ClientRun:
    return find_codex(place).run("What is the weather in Paris?", url)


def run_vercel_ai(place: ClientPlace, url: str, environment: str) -> ClientRun:
    node = find_environment("tools").folder / "bin" / "node"
    return place.run((node, SCRIPTS / "vercel_ai.mjs", find_environment(environment).folder, url))


def run_llm(place: ClientPlace, url: str, environment: str) -> ClientRun:
    """llm speaks chat completions to a model that its user adds in a file."""
    model = f"- model_id: simulated\n  model_name: gpt-5.5\n  api_base: {url}/v1\n  supports_tools: true\n"
    (place.home / "extra-openai-models.yaml").write_text(model, encoding="utf-8")
    tool = 'def get_weather(city: str) -> str:\n    print("called for", city)\n    return "21 degrees"\n'
    program = find_environment(environment).folder / "bin" / "llm"
    command = (program, "-m", "simulated", "--functions", tool, "What is the weather in Paris?")
    return place.run(command, {"LLM_USER_PATH": str(place.home), "OPENAI_API_KEY": "sk-test"})


def run_aider(place: ClientPlace, url: str, environment: str) -> ClientRun:
    """aider has no tools: it edits a file by what the reply says, and asks again for a commit message."""
    note = place.project / "weather.txt"
    note.write_text("unknown\n", encoding="utf-8")
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        author = ("-c", "user.name=a", "-c", "user.email=a@localhost")
        subprocess.run(["git", *author, *words], cwd=place.project, check=True)
    program = find_environment(environment).folder / "bin" / "aider"
    quiet = ("--yes-always", "--no-check-update", "--analytics-disable", "--no-show-model-warnings")
    model = ("--model", "anthropic/claude-sonnet-4-6", "--edit-format", "diff")
    ran = place.run(
        (program, *model, *quiet, "--no-pretty", "--message", "Write down the weather.", note.name),
        {
            "ANTHROPIC_API_BASE": url,
            "ANTHROPIC_API_KEY": "sk-ant-test",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        },
    )
    log = subprocess.run(
        ["git", "log", "-p"], cwd=place.project, check=True, capture_output=True, text=True
    )
    return ClientRun(ran.code, ran.out + log.stdout, ran.err)


@dataclass(frozen=True)
class Conversation:
    """One row of the table."""

    client: str
    environment: str
    run: Callable[[ClientPlace, str, str], ClientRun]
    script: Sequence[dict[str, Any]]
    shows: Sequence[str] = ("called for Paris", ANSWER)  # In what the client prints


WEATHER = call_tool("get_weather", city="Paris")
EDIT = "weather.txt\n```\n<<<<<<< SEARCH\nunknown\n=======\n21 degrees\n>>>>>>> REPLACE\n```\n"
CONVERSATIONS = [
    Conversation(
        "Claude Code",
        "claude-code",
        run_claude_code,
        call_tool("Bash", command="echo 21 degrees", description="Ask"),
        (ANSWER, '"num_turns":2'),
    ),
    Conversation(
        "Codex",
        "codex",
        run_codex,
        call_tool("exec_command", cmd="echo 21 degrees"),
        (ANSWER, '"aggregated_output":"21 degrees'),
    ),
    Conversation("anthropic tool_runner", "anthropic", run_python("anthropic_tool_runner.py"), WEATHER),
    Conversation("openai responses.create", "openai", run_python("openai_responses.py"), WEATHER),
    Conversation("openai-agents", "openai-agents", run_python("openai_agents.py"), WEATHER),
    Conversation("LangChain, ChatAnthropic", "langchain", run_python("langchain_agent.py"), WEATHER),
    Conversation("pydantic-ai", "pydantic-ai", run_python("pydantic_ai_agent.py"), WEATHER),
    Conversation("Vercel AI SDK", "vercel-ai", run_vercel_ai, WEATHER),
    Conversation("llm", "llm", run_llm, WEATHER),
    Conversation(
        "aider (has no tools: an edit)",
        "aider",
        run_aider,
        [{"reply": {"text": EDIT}}, {"reply": {"text": "docs: the weather"}}],
        ("Applied edit to weather.txt", "docs: the weather", "+21 degrees"),
    ),
    Conversation("LiteLLM", "litellm", run_python("litellm_completion.py"), WEATHER),
]


@pytest.mark.parametrize("way", ["direct", "through the proxy"])
@pytest.mark.parametrize("conversation", CONVERSATIONS, ids=lambda c: c.environment)
def test_client_holds_a_conversation(
    conversation: Conversation,
    way: str,
    start_provider: StartProvider,
    start_proxy: StartProxy,
    place: ClientPlace,
    record_row: RecordRow,
) -> None:
    record_row(conversation.client, find_version(place, conversation.environment), way)
    provider = start_provider(conversation.script)
    proxy = start_proxy(provider.url) if way == "through the proxy" else None

    ran = conversation.run(place, proxy.url if proxy else provider.url, conversation.environment)

    assert ran.code == 0, ran.out + ran.err
    assert [text for text in conversation.shows if text not in ran.out] == []
    rows = provider.read_requests()
    assert len(rows) >= 2
    assert {row["status"] for row in rows} == {200}
    if proxy:
        totals = proxy.read_receipt()["totals"]
        assert (totals["requests"], totals["failed"], totals["passed"]) == (len(rows), 0, 0)
