package terminal

// Colour is how a text stands out on a terminal: an escape sequence (ANSI).
type Colour string

// Colours of verdicts: good, doubtful and bad, and of what could not be seen.
const (
	Green  Colour = "\x1b[32m"
	Yellow Colour = "\x1b[33m"
	Red    Colour = "\x1b[31m"
	Cyan   Colour = "\x1b[36m"
)

// Paint returns a text in the colour if colours are wanted. The text is printable already:
// the escapes of colours are not.
func (c Colour) Paint(text string, wanted bool) string {
	if !wanted || c == "" {
		return text
	}
	return string(c) + text + "\x1b[0m"
}
