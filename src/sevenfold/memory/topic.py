"""A topic file: one memory, as markdown with a few lines of frontmatter.

    read_topic(data, "no-mocks.md")        a Topic whatever the bytes are, with its flaws named
    changed(topic, description="…")        the bytes with that one thing changed and nothing else
    new_topic("a.md", name=…, …)           the bytes of a new one, which every YAML reader can read

What we do not know is kept as it is.
"""

from sevenfold.memory.topics.changes import changed, new_topic
from sevenfold.memory.topics.reading import TYPES, Origin, Topic, Type, read_topic

__all__ = ["TYPES", "Origin", "Topic", "Type", "changed", "new_topic", "read_topic"]
