package api

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/nftproxy/nftproxy/internal/model"
)

// Filter selects the Services of a report. The zero value selects all.
type Filter struct {
	Namespace string // empty: all
	// Names are namespace/name or name, in which * stands for any characters; none: all.
	Names    []string
	Problems bool // only Services with a problem or a note
	// Rows is how many frontends may be listed: a report with more lists none of them.
	// Zero: no limit.
	Rows int
}

// Check returns an error for a malformed pattern.
func (f *Filter) Check() error {
	for _, n := range f.Names {
		if n == "" || len(n) > maxPattern || strings.ContainsAny(n, "[]?\\") {
			return fmt.Errorf("%q is not the name of a Service: write for example shop/web, web or 'shop/*'", n)
		}
	}
	return nil
}

// Selects reports whether the filter names Services.
func (f *Filter) Selects() bool { return f.Namespace != "" || len(f.Names) > 0 }

// Matches reports whether the filter selects a Service by its name.
func (f *Filter) Matches(s model.ServiceName) bool {
	if f.Namespace != "" && s.Namespace != f.Namespace {
		return false
	}
	return len(f.Names) == 0 || slices.ContainsFunc(f.Names, func(pattern string) bool { return matchesName(pattern, s) })
}

func matchesName(pattern string, s model.ServiceName) bool {
	name := s.Name
	if strings.Contains(pattern, "/") {
		name = s.String()
	}
	return matchesText(pattern, name)
}

// matchesText reports whether a text is like a pattern, in which * stands for any
// characters. The cost is bounded by the length of the text, for any pattern.
func matchesText(pattern, text string) bool {
	before, rest, wild := strings.Cut(pattern, "*")
	if !wild {
		return pattern == text
	}
	text, ok := strings.CutPrefix(text, before)
	for ok {
		if before, rest, wild = strings.Cut(rest, "*"); !wild {
			return strings.HasSuffix(text, before)
		}
		_, text, ok = strings.Cut(text, before)
	}
	return false
}

// query returns the filter as parameters of a request.
func (f *Filter) query() url.Values {
	q := url.Values{}
	if f.Namespace != "" {
		q.Set("namespace", f.Namespace)
	}
	if len(f.Names) > 0 {
		q["service"] = f.Names
	}
	if f.Problems {
		q.Set("problems", "true")
	}
	if f.Rows > 0 {
		q.Set("rows", strconv.Itoa(f.Rows))
	}
	return q
}

const (
	maxNames   = 50  // patterns of a request: each is compared with each Service
	maxPattern = 400 // bytes; a namespace and a name have up to 317
)

// ParseFilter returns the filter of a request.
func ParseFilter(q url.Values) (*Filter, error) {
	f := &Filter{Namespace: q.Get("namespace"), Names: q["service"]}
	if len(f.Names) > maxNames {
		return nil, fmt.Errorf("service: %d patterns, at most %d are allowed", len(f.Names), maxNames)
	}
	if err := f.Check(); err != nil {
		return nil, err
	}
	var err error
	if text := q.Get("problems"); text != "" {
		if f.Problems, err = strconv.ParseBool(text); err != nil {
			return nil, fmt.Errorf("problems: %q is not true or false", text)
		}
	}
	if text := q.Get("rows"); text != "" {
		if f.Rows, err = strconv.Atoi(text); err != nil || f.Rows < 0 {
			return nil, fmt.Errorf("rows: %q is not a number", text)
		}
	}
	return f, nil
}
