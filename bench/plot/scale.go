package plot

import "math"

// scale maps values to places on the picture.
type scale struct {
	log        bool
	low, high  float64 // values at the ends; logarithms, if log
	start, end float64 // places of these ends
	ticks      []tick
}

// tick is a line across the picture; minor ones have no text.
type tick struct {
	value float64
	minor bool
}

// place returns where a value is.
func (s *scale) place(v float64) float64 {
	if s.log {
		v = math.Log10(v)
	}
	return s.start + (v-s.low)/(s.high-s.low)*(s.end-s.start)
}

// newScale returns a scale for values between two others.
func newScale(log bool, low, high, start, end float64) *scale {
	s := &scale{log: log, start: start, end: end}
	if log {
		s.logTicks(low, high)
	} else {
		s.linearTicks(high)
	}
	return s
}

// logTicks makes the scale reach over whole decades, and marks 1, 2 and 5 of
// each.
func (s *scale) logTicks(low, high float64) {
	// A value that should be a power of ten may be one unit in the last place
	// above it.
	s.low, s.high = math.Floor(math.Log10(low)+1e-9), math.Ceil(math.Log10(high)-1e-9)
	if s.high <= s.low {
		s.high = s.low + 1
	}
	for decade := s.low; decade < s.high; decade++ {
		for _, factor := range []float64{1, 2, 5} {
			s.ticks = append(s.ticks, tick{factor * math.Pow(10, decade), factor != 1})
		}
	}
	s.ticks = append(s.ticks, tick{math.Pow(10, s.high), false})
}

// linearTicks makes the scale reach from zero to a round number, in about five
// steps of 1, 2 or 5 times a power of ten.
func (s *scale) linearTicks(high float64) {
	if high <= 0 {
		high = 1
	}
	unit := math.Pow(10, math.Floor(math.Log10(high/5)))
	step := unit
	for _, factor := range []float64{2, 5, 10} {
		if high/step > 6 {
			step = factor * unit
		}
	}
	n := math.Ceil(high/step - 1e-9)
	s.high = n * step
	for i := 0.0; i <= n; i++ {
		s.ticks = append(s.ticks, tick{i * step, false})
	}
}
