"""The openai SDK's `responses.create`, plain and then streamed: `openai_responses.py URL`."""

import json
import sys

import openai

TOOL = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather in a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
client = openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key="sk-test", max_retries=0)
items = [{"role": "user", "content": "What is the weather in Paris?"}]
response = client.responses.create(model="gpt-5.5", input=items, tools=[TOOL])
for call in (item for item in response.output if item.type == "function_call"):
    print("called for", json.loads(call.arguments)["city"])
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "21 degrees"}
    items += [*(item.to_dict() for item in response.output), result]
with client.responses.stream(model="gpt-5.5", input=items, tools=[TOOL]) as stream:
    print(stream.get_final_response().output_text)
