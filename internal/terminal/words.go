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

// List returns the first items, at most so many, and the number of the others: "a, b and 3
// more".
func List[T any](items []T, most int) string {
	shown := items[:min(len(items), most)]
	texts := make([]string, len(shown))
	for i, item := range shown {
		texts[i] = fmt.Sprint(item)
	}
	text := strings.Join(texts, ", ")
	if more := len(items) - len(shown); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
