"""The fault of a text file that does not hold what is declared: line, column and value."""

from jobs.declare.answers.times import shown

OTHER_TYPE = "Correct it, or declare another type in Input.schema."


class TextFault(Exception):  # noqa: N818  # a fault of the file
    """A text file cannot be read as declared.

    Attributes:
        reason: What is wrong, without values of the file.
        line: The line where the row, or a quote that is not closed, begins, from 1; None for the
            whole file.
        column: The declared column at fault, if any.
        value: The text that stands in its place, if it can be shown.
        cure: What to do, in a sentence.
    """

    def __init__(
        self,
        reason: str,
        line: int | None = None,
        column: str | None = None,
        value: str | None = None,
        *,
        cure: str = "",
    ) -> None:
        super().__init__(reason, line, column, value)
        self.reason, self.line, self.column, self.value = reason, line, column, value
        self.cure = cure or (OTHER_TYPE if column is not None else "")

    def sentence(self, *, hidden: bool) -> str:
        """Describe the fault in a sentence, with a cure.

        Args:
            hidden: Whether to omit the value, because it may be personal.
        """
        where = [f"line {self.line:,}"] if self.line is not None else []
        where += [f"column {self.column}"] if self.column is not None else []
        found = "" if self.value is None or hidden else f", found {shown(self.value)}"
        fault = f"{', '.join(where)}{': ' if where else ''}{self.reason}{found}."
        return f"{fault} {self.cure}".rstrip()
