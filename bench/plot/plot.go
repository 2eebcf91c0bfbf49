// Package plot draws lines over logarithmic or linear axes as SVG. The picture
// has a background of its own, so that it can be read on light and dark pages,
// needs no fonts or scripts, and is the same, byte by byte, for the same values.
package plot

import (
	"errors"
	"fmt"
	"math"
)

// Plot is a picture with one system of axes.
type Plot struct {
	Title string
	X, Y  Axis
	Lines []Line
}

// Axis is one direction of a plot. Its ends follow from the points.
type Axis struct {
	Label string // with the unit
	Log   bool
	// Format writes a value at a tick.
	Format func(float64) string
}

// Line is a series of points that belong together, in ascending order of X.
type Line struct {
	Name   string
	Points []Point
	// Colour is an index into a palette; lines of one colour differ by
	// Dashed.
	Colour int
	Dashed bool
}

// Point is a value.
type Point struct{ X, Y float64 }

// check returns an error if the plot cannot be drawn.
func (p *Plot) check() error {
	if len(p.Lines) == 0 {
		return errors.New("no lines")
	}
	for _, l := range p.Lines {
		if len(l.Points) == 0 {
			return fmt.Errorf("line %q has no points", l.Name)
		}
		for _, pt := range l.Points {
			if !drawable(pt.X, p.X.Log) || !drawable(pt.Y, p.Y.Log) {
				return fmt.Errorf("line %q: point %v cannot be drawn on these axes", l.Name, pt)
			}
		}
	}
	return nil
}

func drawable(v float64, log bool) bool {
	return !math.IsNaN(v) && !math.IsInf(v, 0) && (!log || v > 0)
}
