package plot

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"math"
	"strings"
)

// Sizes in pixels.
const (
	width, height = 760, 460
	left, right   = 92, 36
	top           = 56
	axisHeight    = 58 // below the field: numbers and label of the X axis
	legendRow     = 20
)

// colours can be told apart by people who see colours differently, on white.
var colours = []string{"#0b62a4", "#c8401f", "#3a8a3a", "#7b4fa3", "#9a6b00", "#4d4d4d"}

// SVG draws the plot.
func (p *Plot) SVG() ([]byte, error) {
	if err := p.check(); err != nil {
		return nil, fmt.Errorf("draw plot %q: %w", p.Title, err)
	}
	low, high := p.bounds()
	field := height - axisHeight - legendRow*len(p.Lines) - 8
	d := &drawing{
		x:      newScale(p.X.Log, low.X, high.X, left, width-right),
		y:      newScale(p.Y.Log, low.Y, high.Y, float64(field), top),
		bottom: float64(field),
	}
	d.printf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img" font-family="sans-serif" font-size="13" fill="#222">`,
		width, height, width, height)
	d.printf(`<title>%s</title>`, escape(p.Title))
	d.printf(`<rect width="%d" height="%d" rx="6" fill="#fff" stroke="#ccc"/>`, width, height)
	d.text(width/2, 28, `text-anchor="middle" font-size="16" font-weight="bold"`, p.Title)
	d.axes(p)
	for i := range p.Lines {
		d.line(&p.Lines[i])
		d.legend(&p.Lines[i], d.bottom+axisHeight+float64(i*legendRow))
	}
	d.printf(`</svg>`)
	return d.Bytes(), nil
}

// bounds returns the smallest and the largest values.
func (p *Plot) bounds() (low, high Point) {
	low, high = p.Lines[0].Points[0], p.Lines[0].Points[0]
	for _, l := range p.Lines {
		for _, pt := range l.Points {
			low = Point{math.Min(low.X, pt.X), math.Min(low.Y, pt.Y)}
			high = Point{math.Max(high.X, pt.X), math.Max(high.Y, pt.Y)}
		}
	}
	return low, high
}

// drawing is a picture under way.
type drawing struct {
	bytes.Buffer
	x, y   *scale
	bottom float64 // of the field
}

func (d *drawing) printf(format string, args ...any) {
	fmt.Fprintf(d, format+"\n", args...)
}

// text writes text that may contain anything.
func (d *drawing) text(x, y float64, attributes, s string) {
	d.printf(`<text x="%s" y="%s" %s>%s</text>`, coordinate(x), coordinate(y), attributes, escape(s))
}

// axes draws the grid with numbers and labels.
func (d *drawing) axes(p *Plot) {
	for _, t := range d.x.ticks {
		x := d.x.place(t.value)
		d.rule(x, top, x, d.bottom, t)
		if !t.minor {
			d.text(x, d.bottom+18, `text-anchor="middle"`, p.X.Format(t.value))
		}
	}
	for _, t := range d.y.ticks {
		y := d.y.place(t.value)
		d.rule(left, y, width-right, y, t)
		if !t.minor {
			d.text(left-8, y+4, `text-anchor="end"`, p.Y.Format(t.value))
		}
	}
	d.printf(`<rect x="%d" y="%d" width="%d" height="%s" fill="none" stroke="#888"/>`,
		left, top, width-left-right, coordinate(d.bottom-top))
	d.text((left+width-right)/2, d.bottom+38, `text-anchor="middle"`, p.X.Label)
	middle := coordinate((top + d.bottom) / 2)
	d.text(18, (top+d.bottom)/2, fmt.Sprintf(`text-anchor="middle" transform="rotate(-90 18 %s)"`, middle), p.Y.Label)
}

// rule draws one line of the grid.
func (d *drawing) rule(x1, y1, x2, y2 float64, t tick) {
	colour := "#ccc"
	if t.minor {
		colour = "#eee"
	}
	d.printf(`<line x1="%s" y1="%s" x2="%s" y2="%s" stroke="%s"/>`,
		coordinate(x1), coordinate(y1), coordinate(x2), coordinate(y2), colour)
}

// line draws a series, with a dot at each point.
func (d *drawing) line(l *Line) {
	var points []string
	for _, pt := range l.Points {
		points = append(points, coordinate(d.x.place(pt.X))+","+coordinate(d.y.place(pt.Y)))
	}
	d.printf(`<polyline points="%s" fill="none" %s/>`, strings.Join(points, " "), l.stroke())
	for _, pt := range l.Points {
		d.printf(`<circle cx="%s" cy="%s" r="3.5" fill="%s"/>`, coordinate(d.x.place(pt.X)), coordinate(d.y.place(pt.Y)), l.colour())
	}
}

// legend draws the name of a series.
func (d *drawing) legend(l *Line, y float64) {
	d.printf(`<line x1="%d" y1="%s" x2="%d" y2="%s" %s/>`, left, coordinate(y), left+36, coordinate(y), l.stroke())
	d.text(left+44, y+4, `text-anchor="start"`, l.Name)
}

func (l *Line) colour() string { return colours[l.Colour%len(colours)] }

func (l *Line) stroke() string {
	s := fmt.Sprintf(`stroke="%s" stroke-width="2"`, l.colour())
	if l.Dashed {
		s += ` stroke-dasharray="6 4"`
	}
	return s
}

// coordinate writes a place with a tenth of a pixel at most.
func coordinate(v float64) string {
	return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0")
}

func escape(s string) string {
	var b bytes.Buffer
	// A Buffer takes everything.
	_ = xml.EscapeText(&b, []byte(s))
	return b.String()
}
