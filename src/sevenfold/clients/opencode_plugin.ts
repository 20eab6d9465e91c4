// Sevenfold beside opencode: recall, guard and history of memory. Written by `sevenfold setup opencode`.
const COMMAND = ["sevenfold", "hook"]

async function ask(event: string, fields: object) {
  const words = [...COMMAND.slice(0, 2), event, ...COMMAND.slice(2)]
  const child = Bun.spawn(words, { stdin: "pipe", stdout: "pipe", stderr: "ignore" })
  child.stdin.write(JSON.stringify(fields))
  child.stdin.end()
  const said = await new Response(child.stdout).text()
  try {
    return JSON.parse(said).hookSpecificOutput ?? {}
  } catch {
    return {}
  }
}

export const Sevenfold = async ({ directory }) => ({
  "chat.message": async (input, output) => {
    const texts = output.parts.filter((part) => part.type === "text" && !part.synthetic)
    const prompt = texts.map((part) => part.text).join("\n")
    const said = await ask("UserPromptSubmit", { session_id: input.sessionID, cwd: directory, prompt })
    const last = texts.at(-1)
    if (last && said.additionalContext) last.text += `\n\n${said.additionalContext}`
  },
  "tool.execute.before": async (input, output) => {
    if (!["write", "edit"].includes(input.tool)) return
    const fields = { session_id: input.sessionID, cwd: directory, tool_name: input.tool, tool_input: output.args }
    const said = await ask("PreToolUse", fields)
    if (said.permissionDecision === "deny") throw new Error(said.permissionDecisionReason)
  },
  event: async ({ event }) => {
    if (event.type === "session.idle") {
      await ask("Stop", { session_id: event.properties.sessionID, cwd: directory })
    }
  },
})
