package worlds

import "math/rand/v2"

// dice makes the choices of a world.
type dice struct{ *rand.Rand }

func newDice(seed uint64) dice { return dice{rand.New(rand.NewPCG(seed, 0))} }

// isIn returns true with a probability in per cent.
func (d dice) isIn(percent int) bool { return d.IntN(100) < percent }

// drawOne returns one of several values.
func drawOne[T any](d dice, of ...T) T { return of[d.IntN(len(of))] }

// drawSome returns some of several values, from least to most of them, in any order.
func drawSome[T any](d dice, least, most int, of []T) []T {
	most = min(most, len(of))
	var out []T
	for _, i := range d.Perm(len(of))[:least+d.IntN(most-least+1)] {
		out = append(out, of[i])
	}
	return out
}

// setting is a value that an object gets with a probability.
type setting struct {
	name    string
	percent int
	values  []string
}

// drawSettings returns the settings that are drawn, each with one of its values.
func (d dice) drawSettings(of []setting) map[string]string {
	out := make(map[string]string)
	for _, s := range of {
		if d.isIn(s.percent) {
			out[s.name] = drawOne(d, s.values...)
		}
	}
	return out
}
