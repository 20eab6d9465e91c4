"""openai-agents with its defaults, tracing off: `openai_agents.py URL`."""

import sys

import openai
from agents import Agent, Runner, function_tool, set_default_openai_client, set_tracing_disabled


@function_tool
def get_weather(city: str) -> str:
    """The weather in a city."""
    print("called for", city)
    return "21 degrees"


set_tracing_disabled(True)
set_default_openai_client(
    openai.AsyncOpenAI(base_url=sys.argv[1] + "/v1", api_key="sk-test", max_retries=0)
)
agent = Agent("reporter", model="gpt-5.5", tools=[get_weather])
print(Runner.run_sync(agent, "What is the weather in Paris?").final_output)
