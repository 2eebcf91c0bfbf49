package machine

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
)

// Level says how bad a finding is.
type Level uint8

const (
	Problem Level = iota // Services would not work
	Warning              // something to look at: they may not work
	Unseen               // the check had no access to the facts that it needs
	OK
)

var levelNames = [...]string{"problem", "warning", "unseen", "ok"}

func (l Level) String() string { return levelNames[l] }

// MarshalText implements encoding.TextMarshaler.
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (l *Level) UnmarshalText(text []byte) error {
	i := slices.Index(levelNames[:], string(text))
	if i < 0 {
		return fmt.Errorf("unknown level %q", text)
	}
	*l = Level(i)
	return nil
}

// Finding is the result of one check. The names of the JSON fields are stable.
type Finding struct {
	Check string `json:"check"` // its name, stable
	Level Level  `json:"level"`
	// Subject tells several findings of a check apart: an IP family, a chain, a bridge.
	Subject string `json:"subject,omitempty"`
	Message string `json:"message"`
	// Remedy says how to solve the problem, empty if nothing has to be done.
	Remedy string `json:"remedy,omitempty"`
	// Documentation is the page about it, relative to the root of the repository.
	Documentation string `json:"documentation,omitempty"`
}

// Reasons returns the reasons ([Finding.Reason]) of the checks of a daemon, sorted.
func Reasons() (out []string) {
	for _, c := range checks {
		if c.reason != "" {
			out = append(out, string(c.reason))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Reason returns the name of the check as one word, for the status of a daemon.
func (f Finding) Reason() model.Reason {
	i := slices.IndexFunc(checks, func(c check) bool { return c.name == f.Check && c.reason != "" })
	if i < 0 {
		return model.Reason(f.Check)
	}
	return checks[i].reason
}

// Notice returns the finding as the status of a daemon has it.
func (f Finding) Notice() model.Notice {
	return model.Notice{Object: model.Machine(), Reason: f.Reason(), Message: f.String()}
}

// String returns the message with the remedy.
func (f Finding) String() string {
	if f.Remedy == "" {
		return f.Message
	}
	return f.Message + ": " + f.Remedy
}

// sortFindings returns findings with the worst first.
func sortFindings(all []Finding) []Finding {
	slices.SortStableFunc(all, func(a, b Finding) int { return cmp.Compare(a.Level, b.Level) })
	return all
}
