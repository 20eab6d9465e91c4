"""The anthropic SDK's loop, with its defaults: `anthropic_tool_runner.py URL`."""

import sys

import anthropic


@anthropic.beta_tool
def get_weather(city: str) -> str:
    """The weather in a city.

    Args:
        city: The name of the city.
    """
    print("called for", city)
    return "21 degrees"


client = anthropic.Anthropic(base_url=sys.argv[1], api_key="sk-ant-test", max_retries=0)
runner = client.beta.messages.tool_runner(
    model="claude-sonnet-4-6",
    max_tokens=1000,
    tools=[get_weather],
    messages=[{"role": "user", "content": "What is the weather in Paris?"}],
)
print(runner.until_done().content[0].text)
