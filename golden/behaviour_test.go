package golden

import (
	"slices"
	"strings"
	"testing"
)

// TestBehaviour checks the cases in the directory behaviour.
func TestBehaviour(t *testing.T) {
	forEach(t, behaviours, func(t *testing.T, c *testCase) {
		for _, p := range c.phases {
			t.Run(p.setup[len(p.setup)-1].Name, func(t *testing.T) {
				want, fails := p.result("error")
				if fails || p.err != nil {
					checkError(t, p.err, want)
					return
				}
				for _, section := range p.results {
					p.checkBehaviour(t, c, section.Name, string(section.Data))
				}
			})
		}
	})
}

func (p *phase) checkBehaviour(t *testing.T, c *testCase, name, want string) {
	t.Helper()
	switch name {
	case "want":
		p.check(t, name, destinations(t, p.rules, want))
	case "notices":
		p.check(t, name, p.notices())
	case "rules":
		checkRules(t, text(t, p.rules), want)
	case "same":
		if got := text(t, p.rules); got != text(t, c.phases[0].rules) {
			t.Errorf("the rules are not those of the first input:\n%s", got)
		}
	default:
		t.Fatalf("unknown section %q", name)
	}
}

// checkRules looks for lines, and for parts of lines that must not be there.
func checkRules(t *testing.T, text, want string) {
	t.Helper()
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.Trim(line, "\t,\n"))
	}
	for line := range strings.Lines(want) {
		line = strings.TrimSpace(line)
		if part, not := strings.CutPrefix(line, "! "); not && strings.Contains(text, part) {
			t.Errorf("the rules must not have: %s\n%s", part, text)
		} else if !not && !slices.Contains(lines, line) {
			t.Errorf("the rules lack: %s\n%s", line, text)
		}
	}
}

// checkError looks for parts of a message.
func checkError(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || want == "" {
		t.Fatalf("error is %v, want %q", err, want)
	}
	for part := range strings.Lines(want) {
		if !strings.Contains(err.Error(), strings.TrimSpace(part)) {
			t.Errorf("error is\n%v\nwant in it: %s", err, part)
		}
	}
}
