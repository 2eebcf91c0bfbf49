package setting

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/suggest"
)

// parseWord reads one of some words, which are the values of T from 1 on.
func parseWord[T ~uint8](words []string, at func(*Values) *T) func(*Values, any) string {
	return func(v *Values, value any) string {
		text, _ := value.(string)
		i := slices.Index(words, text)
		if i < 0 {
			return "is unknown: " + suggest.OneOf(words...)
		}
		*at(v) = T(i + 1)
		return ""
	}
}

// wordText returns the word of a value, or nothing for the default.
func wordText[T ~uint8](words []string, value T) string {
	if value == 0 {
		return ""
	}
	return words[value-1]
}

var readScheduler = parseWord(model.SchedulerNames, func(v *Values) *model.Scheduler { return &v.Scheduler })

// countingSchedulers are names that other programs have for schedulers by the number of open connections.
var countingSchedulers = []string{"leastconn", "least-conn", "least_conn", "leastconns", "lc", "wlc", "sed", "nq", "lblc", "lblcr", "twos"}

func parseScheduler(v *Values, value any) string {
	if text, _ := value.(string); slices.Contains(countingSchedulers, strings.ToLower(text)) {
		return `is unknown: the kernel's rules do not count the open connections of an endpoint; use "round-robin", with weights for unequal endpoints`
	}
	return readScheduler(v, value)
}

// parseNumber reads a number, from a text or as it is.
func parseNumber(problem string, valid func(int64) bool, at func(*Values) *uint32) func(*Values, any) string {
	return func(v *Values, value any) string {
		n, ok := value.(int64)
		if text, isText := value.(string); isText {
			parsed, err := strconv.ParseUint(strings.TrimSpace(text), 10, 32)
			n, ok = int64(parsed), err == nil
		}
		if !ok || !valid(n) {
			return problem
		}
		*at(v) = uint32(n)
		return ""
	}
}

func numberText(n uint32) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatUint(uint64(n), 10)
}

func isSize(n int64) bool {
	return slices.ContainsFunc(model.MaglevSizes, func(size uint32) bool { return n == int64(size) })
}

var readFloor = parseNumber("is not a share of the endpoints: use 1% to 100%, without a fraction",
	func(n int64) bool { return 1 <= n && n <= 100 }, func(v *Values) *uint32 { return &v.ZoneFloor })

// parseFloor reads a percentage, with its sign or without.
func parseFloor(v *Values, value any) string {
	if text, ok := value.(string); ok {
		value = strings.TrimSuffix(strings.TrimSpace(text), "%")
	}
	return readFloor(v, value)
}

func parseConnections(at func(*Values) *uint32) func(*Values, any) string {
	return parseNumber(fmt.Sprintf("is not a number of connections: use 1 to %d", budget.Connections),
		func(n int64) bool { return 1 <= n && n <= budget.Connections }, at)
}

// parseTime reads a time from a second on, with its unit if it is a text.
func parseTime(problem string, longest time.Duration, at func(*Values) *time.Duration) func(*Values, any) string {
	return func(v *Values, value any) string {
		d, ok := value.(time.Duration)
		if text, isText := value.(string); isText {
			parsed, err := time.ParseDuration(strings.TrimSpace(text))
			d, ok = parsed, err == nil
		}
		if !ok || d < time.Second || d > longest {
			return problem
		}
		*at(v) = d
		return ""
	}
}

func timeText(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return model.DurationText(d)
}

// maxAffinity is the longest one that the API server accepts.
const maxAffinity = 24 * time.Hour

const notAffinity = "is not the time that a client stays: use whole seconds, 1s to 24h"

var readAffinity = parseTime(notAffinity, maxAffinity, func(v *Values) *time.Duration { return &v.Affinity })

func parseAffinity(v *Values, value any) string {
	if d, ok := value.(time.Duration); ok && d%time.Second != 0 {
		return notAffinity
	}
	return readAffinity(v, value)
}

const (
	maxRate = 1_000_000
	// maxRefill bounds the time for which the kernel remembers a client.
	maxRefill = 24 * time.Hour
	notARate  = "is not a rate of connections: write it like 100/second, 30/minute or 100/second burst 20"
)

func newRateParser(at func(*Values) *model.Rate) func(*Values, any) string {
	return func(v *Values, value any) string {
		text, _ := value.(string)
		r, problem := parseRate(text)
		if problem == "" {
			*at(v) = r
		}
		return problem
	}
}

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

// joinTexts returns values as annotations list them.
func joinTexts[T fmt.Stringer](all []T) string {
	texts := make([]string, len(all))
	for i, v := range all {
		texts[i] = v.String()
	}
	return strings.Join(texts, ",")
}

// joinWords returns for example "a, b or c".
func joinWords(values []string, word string) string {
	last := len(values) - 1
	if last == 0 {
		return values[0]
	}
	return strings.Join(values[:last], ", ") + " " + word + " " + values[last]
}
