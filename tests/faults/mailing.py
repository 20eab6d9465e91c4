"""A process that writes to another one and reads what comes from it: to be killed, and started again.

Every other message goes through the other's mailbox, the rest through its socket; all of them end in the
same mailbox file. What was acknowledged is noted in a journal, and what is not noted is sent again under
the same id. What arrives goes through `MailDelivery` into a transcript on disk. Each line on stdout
says how many messages were acknowledged and how many were received so far.
"""

from __future__ import annotations

import sys
from pathlib import Path

import anyio

from sevenfold.core.clock import SystemClock
from sevenfold.core.errors import Failure
from sevenfold.core.transcript import Mark
from sevenfold.layers.l7_agents.mail import BY, MailDelivery, MemberInfo, PostOffice, find_letter_id
from sevenfold.layers.l7_agents.mailbox import Letter, MailboxFull, make_letter
from sevenfold.layers.l7_agents.sockets import NotSent, SessionListener, send_letter_to
from sevenfold.session.log import TranscriptFile
from sevenfold.storage.jsonl import JsonlLog

PAUSE = 0.002


class Correspondent:
    def __init__(self, folder: Path, own: str, peer: str, count: int) -> None:
        self.own, self.peer, self.count = own, peer, count
        self.clock = SystemClock()
        self.runtime = folder / "run"
        self.post = PostOffice(folder / "home", "team", self.clock, print)
        self.inbox = self.post.inbox(own)
        self.journal = JsonlLog(folder / f"{own}.sent")
        self.sent = len(self.journal.read().splitlines())
        self.recording = TranscriptFile(folder / f"{own}.jsonl", self.clock, print)
        if self.recording.path.exists():
            self.recording.load(self.clock)
        else:
            self.recording.transcript.add(Mark("session", {"format": 1}), by="session")
        self.received = sum(bool(find_letter_id(placed)) for placed in self.recording.transcript.view)

    async def talk(self) -> None:
        self.post.join(self.own, MemberInfo(session=self.own))
        where = (self.runtime, self.clock, print)
        async with SessionListener(self.own, self.inbox.accept, *where), anyio.create_task_group() as tasks:
            tasks.start_soon(self.read)
            tasks.start_soon(self.write)

    async def read(self) -> None:
        delivery = MailDelivery([self.inbox], lambda event: None)
        transcript = self.recording.transcript
        while True:
            handed = delivery.attach(transcript.view)
            if handed:
                transcript.add(*handed, by=BY)
                self.received += len(handed) - 1
                self.say()
            await anyio.sleep(PAUSE)

    async def write(self) -> None:
        while self.sent < self.count:
            number = self.sent + 1
            text, id = f"message {number} " + "word " * (number % 40), f"{self.own}-{number}"
            letter = make_letter(self.own, text, f"the {number}th", self.clock, id=id)
            if await self.acknowledged(letter, number):
                self.journal.append(b'{"n":%d}\n' % number)
                self.sent = number
                self.say()
            else:
                await anyio.sleep(PAUSE)

    async def acknowledged(self, letter: Letter, number: int) -> bool:
        try:
            if number % 2:
                await self.post.inbox(self.peer).accept(letter)
            else:
                await send_letter_to(self.peer, letter, self.runtime, own=self.own)
        except (MailboxFull, NotSent, Failure):
            return False
        return True

    def say(self) -> None:
        print(self.sent, self.received, flush=True)


if __name__ == "__main__":
    folder, own, peer, count = sys.argv[1:]
    correspondent = Correspondent(Path(folder), own, peer, int(count))
    correspondent.say()
    anyio.run(correspondent.talk)
