"""LiteLLM's `completion` on Anthropic's API: `litellm_completion.py URL`."""

import json
import sys

import litellm

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = {
    "type": "function",
    "function": {"name": "get_weather", "description": "The weather in a city.", "parameters": PARAMETERS},
}


def ask(messages):
    return (
        litellm.completion(
            model="anthropic/claude-sonnet-4-6",
            api_base=sys.argv[1],
            api_key="sk-ant-test",
            messages=messages,
            tools=[TOOL],
        )
        .choices[0]
        .message
    )


messages = [{"role": "user", "content": "What is the weather in Paris?"}]
reply = ask(messages)
for call in reply.tool_calls:
    print("called for", json.loads(call.function.arguments)["city"])
    messages += [reply.to_dict(), {"role": "tool", "tool_call_id": call.id, "content": "21 degrees"}]
print(ask(messages).content)
