package setting

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/suggest"
)

// countingSchedulers are names that other programs have for schedulers by the number of open connections.
var countingSchedulers = []string{"leastconn", "least-conn", "least_conn", "leastconns", "lc", "wlc", "sed", "nq", "lblc", "lblcr", "twos"}

// field returns the value of the setting in v; the zero Value if v has no list of clients.
func (s *Setting) field(v *Values) reflect.Value {
	f := reflect.ValueOf(v).Elem()
	for _, i := range indices[s.at] {
		if f = reflect.Indirect(f); !f.IsValid() {
			break
		}
		f = f.Field(i)
	}
	return f
}

// indices are the fields of values on the way to a setting, by its path.
var indices = func() map[string][]int {
	out := make(map[string][]int)
	for _, s := range All {
		t := reflect.TypeFor[Values]()
		for name := range strings.SplitSeq(s.at, ".") {
			if t.Kind() == reflect.Pointer {
				t = t.Elem()
			}
			f, _ := t.FieldByName(name)
			out[s.at], t = append(out[s.at], f.Index...), f.Type
		}
	}
	return out
}()

var noValues Values

// IsParsed reports whether [Setting.Parse] reads the setting: see the package.
func (s *Setting) IsParsed() bool {
	f := s.field(&noValues)
	return f.IsValid() && f.Kind() != reflect.Pointer && f.Kind() != reflect.Slice
}

// Parse reads a value into v and returns the problem with it: a text, an int64 or a [time.Duration].
func (s *Setting) Parse(v *Values, value any) (problem string) {
	f, text := s.field(v), ""
	if t, isText := value.(string); isText {
		text = t
	}
	var parsed any
	switch f.Interface().(type) {
	case time.Duration:
		parsed, problem = s.parseTime(value)
	case uint32:
		parsed, problem = s.parseNumber(value)
	case model.Rate:
		parsed, problem = parseRate(text)
	case string:
		if parsed, problem = parseDescription(text); s == Announce {
			parsed, problem = parseLink(text)
		}
	default: // one of the words, which are the values from 1 on
		i := slices.Index(s.Words, text) + 1
		switch {
		case i == 0 && s == Scheduler && slices.Contains(countingSchedulers, strings.ToLower(text)):
			return `is unknown: the kernel's rules do not count the open connections of an endpoint; use "round-robin", with weights for unequal endpoints`
		case i == 0:
			return "is unknown: " + suggest.OneOf(s.Words...)
		case f.Kind() == reflect.Bool:
			parsed = true
		default:
			parsed = reflect.ValueOf(i).Convert(f.Type()).Interface()
		}
	}
	if problem == "" {
		f.Set(reflect.ValueOf(parsed))
	}
	return problem
}

// parseNumber reads a number, from a text or as it is.
func (s *Setting) parseNumber(value any) (uint32, string) {
	n, ok := value.(int64)
	if text, isText := value.(string); isText {
		parsed, err := strconv.ParseUint(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(text), s.unit)), 10, 32)
		n, ok = int64(parsed), err == nil
	}
	if !ok || s.numbers == nil && (n < s.least || n > s.most) || s.numbers != nil && !slices.Contains(s.numbers, uint32(n)) {
		return 0, s.wrong
	}
	return uint32(n), ""
}

// parseTime reads a time from a second on, with its unit if it is a text. Affinity counts whole seconds.
func (s *Setting) parseTime(value any) (time.Duration, string) {
	d, ok := value.(time.Duration)
	if text, isText := value.(string); isText {
		parsed, err := time.ParseDuration(strings.TrimSpace(text))
		d, ok = parsed, err == nil
	}
	if !ok || d < time.Second || d > time.Duration(s.most) || s == Affinity && d%time.Second != 0 {
		return 0, s.wrong
	}
	return d, ""
}

// Text returns the value as annotations have it; empty: the default.
func (s *Setting) Text(v *Values) string {
	f := s.field(v)
	switch {
	case !f.IsValid() || f.IsZero():
		return ""
	case f.Kind() == reflect.Uint8:
		return s.Words[f.Uint()-1]
	case f.Kind() == reflect.Bool:
		return s.Words[0]
	case f.Kind() == reflect.Slice:
		texts := make([]string, f.Len())
		for i := range texts {
			texts[i] = fmt.Sprint(f.Index(i).Addr().Interface())
		}
		return strings.Join(texts, ",")
	}
	if d, ok := f.Interface().(time.Duration); ok {
		return model.DurationText(d)
	}
	return fmt.Sprint(f.Interface()) + s.unit
}

const (
	maxRate = 1_000_000
	// maxRefill bounds the time for which the kernel remembers a client.
	maxRefill = 24 * time.Hour
	notARate  = "is not a rate of connections: write it like 100/second, 30/minute or 100/second burst 20"
)

// parseRate reads for example "100/second burst 20". As many connections as in one unit of
// time may come together, if burst is left out.
func parseRate(text string) (model.Rate, string) {
	words := strings.Fields(text)
	if len(words) != 1 && (len(words) != 3 || words[1] != "burst") {
		return model.Rate{}, notARate
	}
	digits, name, _ := strings.Cut(words[0], "/")
	unit := slices.Index(model.RateUnits[:], name)
	amount, err := strconv.ParseUint(digits, 10, 32)
	if err != nil || unit < 0 {
		return model.Rate{}, notARate
	}
	burst := amount
	if len(words) == 3 {
		if burst, err = strconv.ParseUint(words[2], 10, 32); err != nil {
			return model.Rate{}, notARate
		}
	}
	if amount < 1 || amount > maxRate || burst < 1 || burst > maxRate {
		return model.Rate{}, fmt.Sprintf("is out of range: use 1 to %d connections", maxRate)
	}
	r := model.Rate{Amount: uint32(amount), Burst: uint32(burst), Unit: model.RateUnit(unit)}
	if r.Refill() > maxRefill {
		return model.Rate{}, fmt.Sprintf("is not possible: at this rate, a burst of %[2]d is complete again only after %[1]s; allow at most 24h", r.Refill(), burst)
	}
	return r, ""
}

// joinWords returns for example "a, b or c".
func joinWords(values []string, word string) string {
	last := len(values) - 1
	if last == 0 {
		return values[0]
	}
	return strings.Join(values[:last], ", ") + " " + word + " " + values[last]
}
