"""Ask a question about this folder, and see what it cost. Works without a key.

python examples/ask.py [FOLDER]
"""

import sys

from sevenfold import Session, run_sync


async def main(folder: str) -> None:
    async with Session(project=folder) as session:  # a Claude model with a key, 'offline' without
        reply = await session.ask("list files")
        print(reply.message.text)
        used = session.ledger.total
        print(f"{used.requests} requests, {used.usage.prompt:,} tokens sent, ${used.cost:.4f}")


if __name__ == "__main__":
    run_sync(main, sys.argv[1] if len(sys.argv) > 1 else ".")
