"""A pydantic-ai agent on Anthropic's API: `pydantic_ai_agent.py URL`."""

import sys

from anthropic import AsyncAnthropic
from pydantic_ai import Agent
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.providers.anthropic import AnthropicProvider

client = AsyncAnthropic(base_url=sys.argv[1], api_key="sk-ant-test", max_retries=0)
agent = Agent(AnthropicModel("claude-sonnet-4-6", provider=AnthropicProvider(anthropic_client=client)))


@agent.tool_plain
def get_weather(city: str) -> str:
    """The weather in a city."""
    print("called for", city)
    return "21 degrees"


print(agent.run_sync("What is the weather in Paris?").output)
