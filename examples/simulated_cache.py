"""See the prompt cache at work with the official SDK and the simulator. Needs no key.

pip install sevenfold[anthropic]
python examples/simulated_cache.py
"""

from anthropic import Anthropic

from sevenfold.simulator import run_in_thread


def main() -> None:
    with run_in_thread() as simulator:
        client = Anthropic(base_url=simulator.url, api_key="any")
        system = [
            {
                "type": "text",
                "text": "You know a great deal about lighthouses. " * 200,
                "cache_control": {"type": "ephemeral"},
            }
        ]
        for question in ("How tall is the tallest?", "Which one is the oldest?"):
            reply = client.messages.create(
                model="claude-sonnet-5",
                max_tokens=100,
                system=system,  # type: ignore[arg-type]
                messages=[{"role": "user", "content": question}],
            )
            used = reply.usage
            print(f"written {used.cache_creation_input_tokens}, read {used.cache_read_input_tokens}")
        print(f"simulated cost: ${simulator.ledger.total.cost:.5f}")


if __name__ == "__main__":
    main()
