package report

import (
	"math"
	"strconv"
	"strings"
)

// Seconds writes a time with two or three digits and a fitting unit, for example
// "41 µs", "1.2 ms" or "3.6 s".
func Seconds(s float64) string {
	switch {
	case s < 999.5e-6:
		return significant(s*1e6) + " µs"
	case s < 999.5e-3:
		return significant(s*1e3) + " ms"
	case s < 600:
		return significant(s) + " s"
	}
	return significant(s/60) + " min"
}

// Bytes writes a size, for example "41 MiB".
func Bytes(b float64) string {
	for _, unit := range []string{"B", "KiB", "MiB"} {
		if b < 1000 {
			return significant(b) + " " + unit
		}
		b /= 1024
	}
	return significant(b) + " GiB"
}

// percent writes a share in percent, for example "0.02 %" or "7.3 %".
func percent(share float64) string {
	if p := 100 * share; p >= 0.095 {
		return significant(p) + " %"
	}
	return strconv.FormatFloat(100*share, 'f', 2, 64) + " %"
}

// Count writes a number with a comma between thousands.
func Count(n float64) string {
	digits := strconv.FormatInt(int64(math.Round(n)), 10)
	var groups []string
	for len(digits) > 3 {
		groups = append([]string{digits[len(digits)-3:]}, groups...)
		digits = digits[:len(digits)-3]
	}
	return strings.Join(append([]string{digits}, groups...), ",")
}

// significant writes two digits, and all that stand before the point.
func significant(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v < 9.95:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return Count(v)
}
