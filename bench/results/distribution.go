package results

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Distribution sums up samples. A percentile is the smallest sample that so
// many of them do not exceed.
type Distribution struct {
	N   int     `json:"n"`
	P50 float64 `json:"p50"`
	P95 float64 `json:"p95"`
	Max float64 `json:"max"`
}

// Durations sums up durations, in seconds. It returns nil for none.
func Durations(samples []time.Duration) *Distribution {
	values := make([]float64, len(samples))
	for i, d := range samples {
		values[i] = d.Seconds()
	}
	return Values(values)
}

// Values sums up values of any unit. It returns nil for none.
func Values(samples []float64) *Distribution {
	if len(samples) == 0 {
		return nil
	}
	sorted := slices.Sorted(slices.Values(samples))
	return &Distribution{
		N:   len(sorted),
		P50: percentile(sorted, 50),
		P95: percentile(sorted, 95),
		Max: sorted[len(sorted)-1],
	}
}

// Median returns the middle one of some values, of an even number the smaller
// of the two.
func Median[T cmp.Ordered](values ...T) T {
	return percentile(slices.Sorted(slices.Values(values)), 50)
}

func percentile[T any](sorted []T, p float64) T {
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return sorted[max(rank, 1)-1]
}
