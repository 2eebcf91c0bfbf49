package plot

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func number(v float64) string { return fmt.Sprintf("%g", v) }

// sample has one line of each kind.
func sample() *Plot {
	return &Plot{
		Title: `cost of <one> change & "more"`,
		X:     Axis{Label: "services", Log: true, Format: number},
		Y:     Axis{Label: "seconds", Log: true, Format: number},
		Lines: []Line{
			{Name: "flat <b>", Points: []Point{{100, 0.001}, {1000, 0.001}, {100000, 0.001}}},
			{Name: "steep", Points: []Point{{100, 0.01}, {10000, 1}}, Colour: 1, Dashed: true},
		},
	}
}

// element is anything in a picture.
type element struct {
	XMLName    xml.Name
	Attributes []xml.Attr `xml:",any,attr"`
	Text       string     `xml:",chardata"`
	Children   []element  `xml:",any"`
}

func (e *element) attribute(name string) string {
	for _, a := range e.Attributes {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

// draw draws a plot and reads the picture.
func draw(t *testing.T, p *Plot) *element {
	t.Helper()
	svg, err := p.SVG()
	if err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(bytes.NewReader(svg)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("not well-formed: %v\n%s", err, svg)
		}
	}
	root := &element{}
	if err := xml.Unmarshal(svg, root); err != nil {
		t.Fatal(err)
	}
	return root
}

// named returns the elements with a name.
func (e *element) named(name string) []element {
	var out []element
	for _, c := range e.Children {
		if c.XMLName.Local == name {
			out = append(out, c)
		}
	}
	return out
}

func (e *element) texts() string {
	var out []string
	for _, t := range e.named("text") {
		out = append(out, t.Text)
	}
	return strings.Join(out, "|")
}

// TestPicture checks that points are at the values that the axes show, and that
// all labels are legible whatever characters they have.
func TestPicture(t *testing.T) {
	root := draw(t, sample())
	want := `cost of <one> change & "more"|100|1000|10000|100000|0.001|0.01|0.1|1|services|seconds|flat <b>|steep`
	if got := root.texts(); got != want {
		t.Errorf("texts are\n%s, want\n%s", got, want)
	}
	at := make(map[string]string) // places of the numbers at the axes
	for _, e := range root.named("text") {
		switch e.attribute("text-anchor") {
		case "middle":
			at["x"+e.Text] = e.attribute("x")
		case "end":
			at["y"+e.Text] = e.attribute("y")
		}
	}
	lines := root.named("polyline")
	if len(lines) != 2 {
		t.Fatalf("%d lines, want 2", len(lines))
	}
	dots := root.named("circle")
	for i, p := range []Point{{100, 0.001}, {1000, 0.001}, {100000, 0.001}, {100, 0.01}, {10000, 1}} {
		var y float64
		if _, err := fmt.Sscan(at["y"+number(p.Y)], &y); err != nil {
			t.Fatal(err)
		}
		y -= 4 // labels are drawn a little below their line
		if got := dots[i]; got.attribute("cx") != at["x"+number(p.X)] || got.attribute("cy") != coordinate(y) {
			t.Errorf("point %v is at %s,%s, want %s,%s", p, got.attribute("cx"), got.attribute("cy"), at["x"+number(p.X)], coordinate(y))
		}
	}
	if got := lines[0].attribute("stroke-dasharray"); got != "" {
		t.Error("the first line is dashed")
	}
	if got := lines[1].attribute("stroke-dasharray"); got == "" {
		t.Error("the second line is not dashed")
	}
	if lines[0].attribute("stroke") == lines[1].attribute("stroke") {
		t.Error("both lines have one colour")
	}
}

// TestBackground proves that the picture does not depend on what is behind it.
func TestBackground(t *testing.T) {
	root := draw(t, sample())
	first := root.named("rect")[0]
	if first.attribute("fill") != "#fff" || first.attribute("width") != root.attribute("width") || first.attribute("height") != root.attribute("height") {
		t.Errorf("background is %v", first)
	}
}

// TestDeterministic draws a plot several times.
func TestDeterministic(t *testing.T) {
	first, err := sample().SVG()
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		if next, err := sample().SVG(); err != nil || !bytes.Equal(first, next) {
			t.Fatalf("the same plot is drawn differently; %v", err)
		}
	}
}

func TestTicks(t *testing.T) {
	for _, c := range []struct {
		name          string
		log           bool
		low, high     float64
		major, minors []float64
	}{
		{"decades", true, 100, 10000, []float64{100, 1000, 10000}, []float64{200, 500, 2000, 5000}},
		{"between", true, 150, 900, []float64{100, 1000}, []float64{200, 500}},
		{"below one", true, 0.004, 0.04, []float64{0.001, 0.01, 0.1}, []float64{0.002, 0.005, 0.02, 0.05}},
		{"one value", true, 10, 10, []float64{10, 100}, []float64{20, 50}},
		{"linear", false, 40, 381, []float64{0, 100, 200, 300, 400}, nil},
		{"linear, round", false, 0, 500, []float64{0, 100, 200, 300, 400, 500}, nil},
		{"linear, small", false, 0.1, 0.23, []float64{0, 0.05, 0.1, 0.15, 0.2, 0.25}, nil},
		{"linear, nothing", false, 0, 0, []float64{0, 0.2, 0.4, 0.6, 0.8, 1}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScale(c.log, c.low, c.high, 0, 100)
			var major, minors []float64
			for _, tick := range s.ticks {
				if v := math.Round(tick.value*1e9) / 1e9; tick.minor {
					minors = append(minors, v)
				} else {
					major = append(major, v)
				}
			}
			if diff := cmp.Diff(c.major, major); diff != "" {
				t.Errorf("numbers (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.minors, minors); diff != "" {
				t.Errorf("lines between (-want +got):\n%s", diff)
			}
			if first, last := s.place(major[0]), s.place(major[len(major)-1]); math.Abs(first) > 1e-6 || math.Abs(last-100) > 1e-6 {
				t.Errorf("the ends are at %v and %v, want 0 and 100", first, last)
			}
		})
	}
}

func TestUndrawable(t *testing.T) {
	for name, spoil := range map[string]func(*Plot){
		"no lines":       func(p *Plot) { p.Lines = nil },
		"no points":      func(p *Plot) { p.Lines[1].Points = nil },
		"log of zero":    func(p *Plot) { p.Lines[0].Points[0].Y = 0 },
		"not a number":   func(p *Plot) { p.Lines[0].Points[0].X = math.NaN() },
		"without an end": func(p *Plot) { p.Lines[0].Points[0].X = math.Inf(1) },
	} {
		t.Run(name, func(t *testing.T) {
			p := sample()
			spoil(p)
			if _, err := p.SVG(); err == nil {
				t.Error("it is drawn")
			}
		})
	}
}
