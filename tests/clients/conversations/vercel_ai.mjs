// The Vercel AI SDK's `generateText` on Anthropic's API: `vercel_ai.mjs FOLDER-OF-PACKAGES URL`.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [folder, url] = process.argv.slice(2);
const packages = createRequire(`${folder}/package.json`);
const load = (name) => import(pathToFileURL(packages.resolve(name)));
const { generateText, stepCountIs, tool } = await load("ai");
const { createAnthropic } = await load("@ai-sdk/anthropic");
const { z } = await load("zod");

const anthropic = createAnthropic({ baseURL: `${url}/v1`, apiKey: "sk-ant-test" });
const { text } = await generateText({
  model: anthropic("claude-sonnet-4-6"),
  prompt: "What is the weather in Paris?",
  maxRetries: 0,
  stopWhen: stepCountIs(3),
  tools: {
    get_weather: tool({
      description: "The weather in a city.",
      inputSchema: z.object({ city: z.string() }),
      execute: async ({ city }) => {
        console.log("called for", city);
        return "21 degrees";
      },
    }),
  },
});
console.log(text);
