package terminal

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// Count returns for example "1 problem" or "3 problems".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// JSON writes a value as JSON that people can read.
func JSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// List returns the first texts, at most so many, and the number of the others: "a, b and 3
// more".
func List(texts []string, most int) string {
	text := strings.Join(texts[:min(len(texts), most)], ", ")
	if more := len(texts) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
