package changes

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/nftproxy/nftproxy/internal/terminal"
	"github.com/nftproxy/nftproxy/internal/words"
)

// signs mark the lines of a plan, which the terminal shows in colours.
var (
	signs   = map[Action]string{Added: "+", Changed: "~", Removed: "-"}
	colours = map[Action]terminal.Colour{Added: terminal.Green, Changed: terminal.Yellow, Removed: terminal.Red}
)

// SameRules is the summary of a plan that changes Services, but no rule.
const SameRules = "The rules stay as they are."

// Print writes a line for each of the first Services, limit at most, one for the number of
// others, and one for all whose changes clients do not notice. Zero means no limit. Errors are the
// writer's, which keeps them as a [bufio.Writer] does.
func Print(w io.Writer, services []Service, limit int, colour bool) {
	in := Words(services)
	services, others, text := groupUnnoticed(services)
	shown := services
	if limit > 0 {
		shown = services[:min(limit, len(services))]
	}
	line := func(a Action, text string) {
		fmt.Fprintln(w, colours[a].Paint(terminal.Printable("  "+signs[a]+" "+text), colour))
	}
	for i := range shown {
		line(shown[i].Action, shown[i].String())
	}
	if rest := services[len(shown):]; len(rest) > 0 {
		fmt.Fprintf(w, "    and %s more: %s\n", Words(rest).Count(len(rest), "Service"), Summary(rest))
	}
	if others > 0 {
		line(Changed, in.Count(others, "Service")+": "+text)
	}
}

// Words are the words for Services together.
func Words(services []Service) words.Vocabulary {
	balances := 0
	for i := range services {
		if services[i].Words == words.Balance {
			balances++
		}
	}
	return words.Among(len(services), balances)
}

// Summary counts Services in one line, for example "1 added, 2 changed".
func Summary(services []Service) string {
	counts := make(map[Action]int)
	for i := range services {
		counts[services[i].Action]++
	}
	var parts []string
	for _, a := range []Action{Added, Changed, Removed} {
		if n := counts[a]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, actionWords[a]))
		}
	}
	return cmp.Or(strings.Join(parts, ", "), "none changed")
}

// String returns for example "shop/cart: affinity 600 s → 300 s; 1 endpoint replaced
// (10.0.0.5:8080 → 10.0.0.9:8080)".
func (s *Service) String() string {
	return s.Name.String() + ": " + s.What()
}

// What returns String without the name.
func (s *Service) What() string {
	parts := make([]string, 0, len(s.Details)+1)
	switch s.Action {
	case Added:
		parts = append(parts, "added")
	case Removed:
		parts = append(parts, "removed")
	}
	for _, d := range s.Details {
		parts = append(parts, d.Text)
	}
	if s.Action != Changed && len(parts) > 1 {
		parts = append([]string{parts[0] + ", " + parts[1]}, parts[2:]...)
	}
	return strings.Join(parts, "; ")
}

type serviceJSON struct {
	Service  string   `json:"service"`
	Action   Action   `json:"action"`   // add, change or delete
	Elements int      `json:"elements"` // of the rules that change
	Details  []Detail `json:"details"`
}

// JSON returns Services as they are encoded in JSON.
func JSON(services []Service) any {
	out := make([]serviceJSON, len(services))
	for i, s := range services {
		out[i] = serviceJSON{s.Name.String(), s.Action, s.Elements, append([]Detail{}, s.Details...)}
	}
	return out
}
