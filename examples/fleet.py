"""Three machines with one memory, in a PostgreSQL server of its own that is killed on the way.

make fleet-demo        or        python examples/fleet.py
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from sevenfold.testing.postgres import PostgresServer, find_postgres

LETTER = """
import os, sys
from sevenfold.fleet.database import FleetDatabase
from sevenfold.fleet.mail import FleetMail
mail = FleetMail(FleetDatabase(os.environ["SEVENFOLD_FLEET_URL"]))
if sys.argv[1] == "send":
    mail.send("ann", "cy", sys.argv[2].encode(), key="ann-1")
else:
    letters = mail.take("cy")
    mail.keep("cy", *(letter.id for letter in letters))
    print("; ".join(f"{letter.sender}: {letter.body.decode()}" for letter in letters))
"""

PORTS = """
from sevenfold import Memory
with Memory.open(".") as memory:
    for n in range(20):
        body = f"Service number {n} listens on port {8000 + n}."
        memory.add(type="project", name=f"port-{n}", description=body, body=body)
"""


class Machine:
    """A home and a project; each command is a process of its own."""

    def __init__(self, folder: Path, name: str, address: str) -> None:
        self.project = folder / name / "shop"
        self.project.mkdir(parents=True)
        home = str(folder / name)
        own = {"HOME": home, "SEVENFOLD_HOME": f"{home}/sevenfold", "SEVENFOLD_FLEET_URL": address}
        self.environ = {"PATH": os.defpath, **own}

    def run(self, *words: str) -> str:
        command = [sys.executable, *words]
        done = subprocess.run(command, cwd=self.project, env=self.environ, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{' '.join(words)} failed: {done.stderr}")
        return done.stdout.strip()

    def sevenfold(self, *words: str) -> str:
        return self.run("-m", "sevenfold", *words)

    def remember(self, name: str, body: str) -> None:
        told = ("--type", "project", "--name", name, "--description", body, "--body", body)
        self.sevenfold("memory", "add", *told)

    def list_memories(self) -> set[str]:
        """The names of what this machine has, after it has heard of what is new."""
        self.sevenfold("fleet", "status")
        return {one["name"] for one in json.loads(self.sevenfold("memory", "list", "--json"))["memories"]}


def main() -> None:
    programs = find_postgres()
    if programs is None:
        sys.exit("PostgreSQL is not installed: apt-get install postgresql")
    server = PostgresServer(programs, durable=True)
    try:
        with tempfile.TemporaryDirectory() as folder:
            show(server, Path(folder))
    finally:
        server.close()


def show(server: PostgresServer, folder: Path) -> None:
    address = server.make_database("fleet")
    ann, bob, cy = machines = [Machine(folder, name, address) for name in ("ann", "bob", "cy")]
    ann.sevenfold("fleet", "init")
    for machine in machines:
        machine.sevenfold("fleet", "join")
    print("Three machines have joined one fleet.")

    ann.remember("deploys", "We deploy on Tuesdays at ten.")
    print(f"Ann wrote a memory. Bob has: {', '.join(sorted(bob.list_memories()))}.")

    ann.run("-c", LETTER, "send", "The release is tagged.")
    print(f"A letter reached Cy. {cy.run('-c', LETTER, 'take')}")

    bob.run("-c", PORTS)
    did = json.loads(cy.sevenfold("fleet", "work", "--once", "--json"))["jobs"]
    print(f"Bob wrote 20 memories, so a dream was due; a worker on Cy's machine did {did}.")

    server.kill()
    ann.remember("during", "Written while the database was dead.")
    print("The server was killed. Ann wrote on; it waits on her machine.")
    server.start()
    known = [machine.list_memories() for machine in machines]
    known = [machine.list_memories() for machine in machines]
    same = known[0] == known[1] == known[2]
    print(f"The server is back. Everything is there, {len(known[0])} memories on each machine: {same}.")


if __name__ == "__main__":
    main()
