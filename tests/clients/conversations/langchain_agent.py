"""A LangChain agent on `ChatAnthropic`: `langchain_agent.py URL`."""

import sys

from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic


def get_weather(city: str) -> str:
    """The weather in a city."""
    print("called for", city)
    return "21 degrees"


model = ChatAnthropic(
    model="claude-sonnet-4-6", base_url=sys.argv[1], api_key="sk-ant-test", max_retries=0, max_tokens=1000
)
agent = create_agent(model, [get_weather])
done = agent.invoke({"messages": [{"role": "user", "content": "What is the weather in Paris?"}]})
print(done["messages"][-1].text)
