package setting

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
)

// TestRows: each row has its parts, and no two have the same name.
func TestRows(t *testing.T) {
	taken := make(map[string]bool)
	for _, s := range append(slices.Clone(All), Limits) {
		for _, name := range []string{"label " + s.Label, "annotation " + s.Annotation, "field " + s.Field} {
			if taken[name] {
				t.Errorf("two settings have the %s", name)
			}
			taken[name] = !strings.HasSuffix(name, " ")
		}
		if s.Label == "" || s.Kind == "" || s.Meaning == "" || s.Annotation+s.Field == "" || s.Words == nil && s.Examples == nil {
			t.Errorf("%s lacks a part: %+v", s.Label, s)
		}
		if s != Limits && (s.Words != nil && !s.IsParsed() || !s.field(&Values{Extras: model.Extras{Sources: new(model.Sources)}}).IsValid()) {
			t.Errorf("%s cannot be read or written", s.Label)
		}
		if strings.HasSuffix(s.Meaning, ".") || strings.ContainsAny(s.Meaning, "`[]") {
			t.Errorf("%s: the meaning is not a plain sentence without a full stop: %s", s.Label, s.Meaning)
		}
	}
	for k := range model.LimitKinds {
		if s := OfLimit(model.LimitKind(k)); s == nil || !slices.Contains(All, s) {
			t.Errorf("limit %s has no row", model.LimitKind(k))
		}
	}
	flags := make(map[string]bool)
	for _, s := range Flags() {
		twice := flags[s.Flag()]
		if flags[s.Flag()] = true; s.Value == "" || twice || !strings.HasPrefix(s.Usage(), "`"+s.Value+"`") {
			t.Errorf("flag --%s: %s", s.Flag(), s.Usage())
		}
	}
}

// TestExamples: the words and the examples of each row that has text are read, and what is
// written means the same.
func TestExamples(t *testing.T) {
	for _, s := range All {
		if !s.IsParsed() || s.Annotation == "" {
			continue
		}
		for _, text := range slices.Concat(s.Words, s.Examples) {
			var v Values
			if problem := s.Parse(&v, text); problem != "" {
				t.Errorf("%s: %q %s", s.Label, text, problem)
			}
			if written := v.Write(); len(written) != 1 || written[s.Annotation] == "" {
				t.Errorf("%s: %q is written as %q", s.Label, text, written)
			}
			readsItself(t, s, text)
		}
		if text := s.Text(&Values{}); text != "" {
			t.Errorf("%s: the default has the text %q", s.Label, text)
		}
	}
}

// readsItself checks that what a row writes for a text means the same, and that what it
// refuses changes nothing.
func readsItself(t *testing.T, s *Setting, text string) {
	t.Helper()
	var v, again Values
	if s.Parse(&v, text) != "" {
		if s.Text(&v) != "" {
			t.Errorf("%s: %q is refused, and changes the settings", s.Label, text)
		}
		return
	}
	written := s.Text(&v)
	if problem := s.Parse(&again, written); problem != "" || s.Text(&again) != written {
		t.Errorf("%s: %q is written as %q, which %s", s.Label, text, written, problem)
	}
}

// FuzzParse reads any text as each setting.
func FuzzParse(f *testing.F) {
	for _, s := range All {
		for _, text := range slices.Concat(s.Words, s.Examples) {
			f.Add(text)
		}
	}
	for _, text := range []string{"", "0", "-1", "4294967547", " 7 ", "1/hour burst 25", "0/second", "\x1b[31m", "\xff"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, s := range All {
			if s.IsParsed() {
				readsItself(t, s, text)
			}
		}
	})
}

// TestDescription: 1.59. A description is one line of printable text.
func TestDescription(t *testing.T) {
	const unprintable = "has a line break, or another character that cannot be printed: write one line of text"
	for text, want := range map[string]string{
		"shop": "", " shop, Ünïcode 商店 \n": "", strings.Repeat("ü", 200): "",
		strings.Repeat("ü", 201): "is longer than 200 characters: shorten it", " ": "is empty: write a line of text",
		"a\nb": unprintable, "a\tb": unprintable, "\x1b[31mred": unprintable, "a\u202eb": unprintable, "a\u200bb": unprintable, "a\xffb": unprintable, "a\u009b31m": unprintable,
	} {
		var v Values
		kept := strings.TrimSpace(text)
		if want != "" {
			kept = ""
		}
		if problem := Description.Parse(&v, text); problem != want || v.Description != kept {
			t.Errorf("%q: %q %s, want %s", text, v.Description, problem, want)
		}
	}
}

// TestShortTime: zeros at the end are left out.
func TestShortTime(t *testing.T) {
	for want := range strings.FieldsSeq("1s 1m 1m1s 1h 1h0m1s 1h1m 24h") {
		var v Values
		d, err := time.ParseDuration(want)
		if err != nil {
			t.Fatal(err)
		}
		if problem := Affinity.Parse(&v, d); problem != "" || Affinity.Text(&v) != want {
			t.Errorf("%s: %s, %s", want, Affinity.Text(&v), problem)
		}
	}
}

// TestSlowStartValues: 3.68, a time from 1 s to 1 h with its unit, as text of an annotation or as
// the time of a Balance.
func TestSlowStartValues(t *testing.T) {
	for value, want := range map[any]time.Duration{
		"30s": 30 * time.Second, " 1500ms ": 1500 * time.Millisecond, "1h": time.Hour, time.Second: time.Second, 5 * time.Minute: 5 * time.Minute,
		"0": 0, "0s": 0, "-5s": 0, "30": 0, "999ms": 0, "1h1s": 0, "10000h": 0, "1e9s": 0, "99999999999999999h": 0, "": 0, "soon": 0, "30 s": 0,
		time.Duration(0): 0, -time.Second: 0, 2 * time.Hour: 0, int64(30): 0,
	} {
		var v Values
		problem := SlowStart.Parse(&v, value)
		if v.SlowStart != want || (problem == "") != (want > 0) {
			t.Errorf("%v: %s, %q, want %s", value, v.SlowStart, problem, want)
		}
	}
}

// TestZoneFloorValues: 3.61, percentages from 1 to 100, with the sign or without.
func TestZoneFloorValues(t *testing.T) {
	for text, want := range map[string]uint32{
		"1%": 1, "100%": 100, "25": 25, " 33 % ": 33, "0": 0, "0%": 0, "101%": 0, "-1": 0, "33.3%": 0, "4294967301": 0, "18446744073709551617%": 0, "%": 0, "": 0, "25%%": 0, "x": 0, "1e1": 0, "+5": 0,
	} {
		var v Values
		problem := ZoneFloor.Parse(&v, text)
		if v.ZoneFloor != want || (problem == "") != (want > 0) {
			t.Errorf("%q: %d, %q, want %d", text, v.ZoneFloor, problem, want)
		}
	}
}
