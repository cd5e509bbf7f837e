"""Counts the responses in the bytes of an HTTP/1.1 connection, and finds the end of each."""

import re
from collections.abc import Callable

STATUS = re.compile(rb"HTTP/\d\.\d +(\d{3})")
END_OF_HEAD = re.compile(rb"\n\r?\n")
FRAMING = re.compile(rb"\n(content-length|transfer-encoding)[ \t]*:[ \t]*([^\r\n]*)", re.IGNORECASE)
CHUNK_SIZE = re.compile(rb"[0-9a-fA-F]{1,15}(?=[ \t;]|$)")
NO_BODY = (204, 304)
LONGEST_HELD = 1 << 20  # bytes of an unfinished head or line; aiohttp gives up earlier


class ResponseCounter:
    """Reads responses without keeping them; holds at most an unfinished head.

    Attributes:
        responses: Responses that have begun, without interim responses (100 to 199, except 101).
        is_between: Whether no response is under way.
        is_out_of_step: Whether bytes arrived that do not begin a response.
    """

    def __init__(self) -> None:
        self.responses = 0
        self.is_between = True
        self.is_out_of_step = False
        self._step: Callable[[bytes, int], int] = self._read_head
        self._held = b""  # the start of a head or a line
        self._left = 0  # bytes of the body or the chunk

    def read(self, data: bytes) -> int:
        """Read to the end of the current response at most. Returns the number of bytes read."""
        at = 0
        while at < len(data):
            at = self._step(data, at)
            if self.is_between:
                break
        return at

    def _read_head(self, data: bytes, at: int) -> int:
        held = len(self._held)
        text = self._held + data[at:] if held else data[at:].lstrip(b"\r\n")
        # the head's position in the data; negative if it began earlier
        read = len(data) - len(text)
        end = END_OF_HEAD.search(text, max(0, held - 3))
        self._held = b"" if end else text
        self.is_between = not self._held
        if end:
            self._begin(text[: end.end()])
            return read + end.end()
        if not text.startswith(b"HTTP/"[: len(text)]):
            self.is_out_of_step = True
        if self.is_out_of_step or len(text) > LONGEST_HELD:
            self._read_to_the_end()
        return len(data)

    def _begin(self, head: bytes) -> None:
        status = STATUS.match(head)
        if status is None:
            self.is_out_of_step = True
            self._read_to_the_end()
            return
        code = int(status[1])
        if 100 <= code < 200 and code != 101:
            return
        self.responses += 1
        self.is_between = False
        coding = length = None
        for name, value in FRAMING.findall(head):
            if name.lower() == b"content-length":
                length = value.strip()
            else:
                coding = value.strip()
        if code in NO_BODY or (coding is None and length == b"0"):
            self._end()
        elif coding is not None and coding.lower().endswith(b"chunked"):
            self._step = self._read_chunk_size
        elif coding is None and length is not None and length.isdigit():
            self._step, self._left = self._read_body, int(length)
        else:
            self._read_to_the_end()

    def _end(self) -> None:
        self._step, self.is_between = self._read_head, True

    def _read_to_the_end(self) -> None:
        """Count all following bytes to this response, whose end is the connection's or unknown."""
        self._held, self.is_between = b"", False
        self._step = lambda data, _at: len(data)

    def _read_body(self, data: bytes, at: int) -> int:
        end = min(len(data), at + self._left)
        self._left -= end - at
        if not self._left:
            self._end()
        return end

    def _read_chunk(self, data: bytes, at: int) -> int:
        end = min(len(data), at + self._left)
        self._left -= end - at
        if not self._left:
            self._step = self._read_chunk_size
        return end

    def _read_chunk_size(self, data: bytes, at: int) -> int:
        line, at = self._read_line(data, at)
        if line:  # an empty line ends the previous chunk
            size = CHUNK_SIZE.match(line)
            if size is None:
                self._read_to_the_end()
            else:
                self._left = int(size[0], 16)
                self._step = self._read_chunk if self._left else self._read_trailer
        return at

    def _read_trailer(self, data: bytes, at: int) -> int:
        line, at = self._read_line(data, at)
        if line == b"":
            self._end()
        return at

    def _read_line(self, data: bytes, at: int) -> tuple[bytes | None, int]:
        """Return the line, or None if it is unfinished, and the position after it."""
        end = data.find(b"\n", at)
        if end < 0:
            self._held += data[at:]
            if len(self._held) > LONGEST_HELD:
                self._read_to_the_end()
            return None, len(data)
        line, self._held = self._held + data[at:end], b""
        return line.removesuffix(b"\r"), end + 1
