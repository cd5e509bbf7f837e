/** A row and the function's answer. */
record AnsweredRow(InputRow row, double x) {}
