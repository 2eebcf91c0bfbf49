package model

import (
	"fmt"
	"slices"
	"strings"
)

// parseName returns the value with a name; the first one has the first name. what is for the error.
func parseName[T ~uint8](what, name string, names []string, first T) (v T, err error) {
	i, last := slices.Index(names, name), len(names)-1
	if i < 0 {
		return v, fmt.Errorf("unknown %s %q: use %s or %s", what, name, strings.Join(names[:last], ", "), names[last])
	}
	return first + T(i), nil
}

// nameOf is the inverse: byDefault is the name of values before the first one.
func nameOf[T ~uint8](v, first T, names []string, byDefault string) string {
	if v < first {
		return byDefault
	}
	return names[v-first]
}
