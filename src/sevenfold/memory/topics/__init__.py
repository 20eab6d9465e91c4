"""Topic files: reading what people really write, and changing only what is to change."""
