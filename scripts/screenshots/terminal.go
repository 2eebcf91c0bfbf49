package main

import (
	"bytes"
	"fmt"
	"html"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Sizes of the picture of a terminal, in pixels.
const (
	cell    = 8.4 // width of a character
	line    = 19
	margin  = 18
	topEdge = 44 // height of the title bar
)

// palette has the 16 colours of a terminal.
var palette = [16]string{
	"#484f58", "#ff7b72", "#3fb950", "#d29922", "#58a6ff", "#bc8cff", "#39c5cf", "#b1bac4",
	"#6e7681", "#ffa198", "#56d364", "#e3b341", "#79c0ff", "#d2a8ff", "#56d4dd", "#f0f6fc",
}

// look is how characters are written.
type look struct {
	foreground, background string // empty: the terminal's
	bold, faint, inverse   bool
}

// run is a part of a line in one look.
type run struct {
	look
	text string
}

var sequence = regexp.MustCompile("\x1b\\[([0-9;:<=>?]*)[ !\"#$%&'*]*([A-Za-z@`])|\x1b\\][^\x07\x1b]*(?:\x07|\x1b\\\\)|\x1bP[^\x1b]*\x1b\\\\|\x1b[=>78M]|\r")

// parse splits the output of a program into lines. It knows colours, and leaves out
// other control sequences.
func parse(output string) [][]run {
	var lines [][]run
	var now look
	for text := range strings.Lines(strings.TrimRight(output, "\r\n") + "\n") {
		text = strings.TrimRight(text, "\r\n")
		var runs []run
		add := func(s string) {
			if s != "" {
				runs = append(runs, run{now, strings.ReplaceAll(s, "\t", "        ")})
			}
		}
		at := 0
		for _, m := range sequence.FindAllStringSubmatchIndex(text, -1) {
			add(text[at:m[0]])
			at = m[1]
			if m[4] >= 0 && text[m[4]:m[5]] == "m" && !private(text[m[2]:m[3]]) {
				now.change(text[m[2]:m[3]])
			}
		}
		add(text[at:])
		lines = append(lines, runs)
	}
	return lines
}

// private reports whether parameters belong to a terminal's own sequence.
func private(parameters string) bool { return strings.ContainsAny(parameters, "<=>?") }

// change carries out the parameters of "select graphic rendition".
func (l *look) change(parameters string) {
	codes := strings.Split(parameters, ";")
	for i := 0; i < len(codes); i++ {
		switch n, _ := strconv.Atoi(codes[i]); {
		case n == 0:
			*l = look{}
		case n == 1:
			l.bold = true
		case n == 2:
			l.faint = true
		case n == 7:
			l.inverse = true
		case n == 22:
			l.bold, l.faint = false, false
		case n == 27:
			l.inverse = false
		case n == 39:
			l.foreground = ""
		case n == 49:
			l.background = ""
		case n == 38 || n == 48:
			colour, used := extended(codes[i+1:])
			i += used
			if n == 38 {
				l.foreground = colour
			} else {
				l.background = colour
			}
		case n >= 30 && n < 38:
			l.foreground = palette[n-30]
		case n >= 40 && n < 48:
			l.background = palette[n-40]
		case n >= 90 && n < 98:
			l.foreground = palette[n-90+8]
		case n >= 100 && n < 108:
			l.background = palette[n-100+8]
		}
	}
}

// extended returns a colour out of 256, or of red, green and blue, and the number of
// parameters that it takes.
func extended(codes []string) (colour string, used int) {
	n := make([]int, len(codes))
	for i, c := range codes {
		n[i], _ = strconv.Atoi(c)
	}
	switch {
	case len(n) > 3 && n[0] == 2:
		return fmt.Sprintf("#%02x%02x%02x", n[1]&255, n[2]&255, n[3]&255), 4
	case len(n) < 2 || n[0] != 5:
		return "", len(n)
	case n[1] < 16:
		return palette[n[1]&15], 2
	case n[1] >= 232:
		grey := (8 + 10*(n[1]-232)) & 255
		return fmt.Sprintf("#%02x%02x%02x", grey, grey, grey), 2
	}
	level := func(v int) int { return min(1, v)*55 + 40*v }
	v := n[1] - 16
	return fmt.Sprintf("#%02x%02x%02x", level(v/36), level(v/6%6), level(v%6)), 2
}

// wrap breaks lines that are longer than the terminal is wide.
func wrap(lines [][]run) (out [][]run) {
	for _, runs := range lines {
		var now []run
		left := columns
		for _, r := range runs {
			text := []rune(r.text)
			for len(text) > left {
				out = append(out, append(now, run{r.look, string(text[:left])}))
				now, text, left = nil, text[left:], columns
			}
			now = append(now, run{r.look, string(text)})
			left -= len(text)
		}
		out = append(out, now)
	}
	return out
}

// picture draws a command line and the first rows of its output as a terminal of a
// fixed width shows them.
func picture(command string, output [][]run, rows int) []byte {
	lines := wrap(append([][]run{{{look{bold: true}, command}}}, output...))
	if len(lines) > rows {
		lines = append(lines[:rows], []run{{look{faint: true}, "..."}})
	}
	const width = 2*margin + columns*cell
	height := float64(topEdge + len(lines)*line + margin)
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" width="%.0f" height="%.0f" role="img" xml:space="preserve">
<title>%s</title>
<style>text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:#e6edf3;white-space:pre}.b{font-weight:700}</style>
<rect x=".5" y=".5" width="%.0f" height="%.0f" rx="8" fill="#0d1117" stroke="#656c76"/>
<circle cx="20" cy="20" r="6" fill="#ff5f57"/><circle cx="40" cy="20" r="6" fill="#febc2e"/><circle cx="60" cy="20" r="6" fill="#28c840"/>
`, width, height, width, height, html.EscapeString(command), width-1, height-1)
	for i, runs := range lines {
		x := float64(margin)
		for _, r := range runs {
			x += draw(&b, x, float64(topEdge+i*line), r)
		}
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// draw writes a run whose line begins at y, and returns its width.
func draw(b *bytes.Buffer, x, y float64, r run) float64 {
	width := float64(utf8.RuneCountInString(r.text)) * cell
	foreground, background := r.foreground, r.background
	if r.inverse {
		foreground, background = background, foreground
		if background == "" {
			background = "#e6edf3"
		}
		if foreground == "" {
			foreground = "#0d1117"
		}
	}
	if background != "" {
		fmt.Fprintf(b, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%d\" fill=%q/>\n", x, y, width, line, background)
	}
	text := strings.TrimRight(r.text, " ")
	if text == "" {
		return width
	}
	attributes := ""
	if foreground != "" {
		attributes += fmt.Sprintf(" fill=%q style=\"fill:%s\"", foreground, foreground)
	}
	if r.bold {
		attributes += ` class="b"`
	}
	if r.faint {
		attributes += ` fill-opacity=".65"`
	}
	n := utf8.RuneCountInString(text)
	fmt.Fprintf(b, "<text x=\"%.1f\" y=\"%.1f\" textLength=\"%.1f\"%s>%s</text>\n", x, y+14, float64(n)*cell, attributes, html.EscapeString(text))
	return width
}
