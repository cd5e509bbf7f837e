"""Lists and reads files by path or URL, and writes them so that they survive a power cut."""
