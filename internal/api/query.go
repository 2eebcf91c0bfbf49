package api

import (
	"fmt"
	"net/netip"
	"net/url"
	"reflect"
	"strconv"
	"time"
)

// parameter is a field of a question, as a URL has it.
type parameter struct {
	name string
	to   any    // a pointer to the field
	form string // of the text, for an error about another one
	most int    // of a number; zero: no limit
	zero bool   // a zero is not the default, and so it is written
}

// encode returns the parameters of a question.
func encode(all []parameter) url.Values {
	v := url.Values{}
	for _, p := range all {
		value := reflect.ValueOf(p.to).Elem()
		if list, ok := value.Interface().([]string); ok && len(list) > 0 {
			v[p.name] = list
		} else if !ok && (p.zero || !value.IsZero()) {
			v.Set(p.name, fmt.Sprint(value.Interface()))
		}
	}
	return v
}

// parse sets the fields of a question. What is absent stays.
func parse(v url.Values, all []parameter) error {
	for _, p := range all {
		text := v.Get(p.name)
		if list, ok := p.to.(*[]string); ok {
			*list = v[p.name]
		} else if text == "" {
			continue
		}
		valid, err := true, error(nil)
		switch to := p.to.(type) {
		case *string:
			*to = text
		case *bool:
			*to, err = strconv.ParseBool(text)
		case *int:
			*to, err = strconv.Atoi(text)
			valid = *to >= 0 && (p.most == 0 || *to <= p.most)
		case *uint64:
			*to, err = strconv.ParseUint(text, 10, 64)
		case *time.Duration:
			*to, err = time.ParseDuration(text)
			valid = *to >= 0
		case *netip.Prefix:
			if *to, err = ParseClients(text); err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
		}
		if err != nil || !valid {
			return fmt.Errorf("%s: %q is not %s", p.name, text, p.form)
		}
	}
	return nil
}
