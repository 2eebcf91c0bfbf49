package main

import (
	"strconv"
	"strings"
)

// screen is what a terminal shows of a program that moves the cursor.
type screen struct {
	rows   [][]cellOf
	x, y   int
	now    look
	height int
	// top and bottom limit the rows that scroll.
	top, bottom int
}

type cellOf struct {
	look
	char rune
}

// show returns the last screen of a program that wrote output.
func show(output string, height int) [][]run {
	s := &screen{rows: make([][]cellOf, height), height: height, bottom: height - 1}
	for output != "" {
		m := sequence.FindStringSubmatchIndex(output)
		if m == nil {
			s.write(output)
			break
		}
		s.write(output[:m[0]])
		switch {
		case m[4] >= 0 && private(output[m[2]:m[3]]):
		case m[4] >= 0:
			s.control(output[m[2]:m[3]], output[m[4]])
		case output[m[0]] == '\r':
			s.x = 0
		}
		output = output[m[1]:]
	}
	return s.lines()
}

func (s *screen) write(text string) {
	for _, c := range text {
		switch {
		case c == '\n' && s.y == s.bottom:
			copy(s.rows[s.top:s.bottom], s.rows[s.top+1:s.bottom+1])
			s.rows[s.bottom] = nil
		case c == '\n':
			s.y = min(s.y+1, s.height-1)
		case c == '\b':
			s.x = max(0, s.x-1)
		case c == '\t':
			s.x = min(columns-1, s.x/8*8+8)
		case c >= ' ' && s.x < columns:
			s.set(s.x, cellOf{s.now, c})
			s.x++
		}
	}
}

// set changes a cell of the current row.
func (s *screen) set(x int, c cellOf) {
	for len(s.rows[s.y]) <= x {
		s.rows[s.y] = append(s.rows[s.y], cellOf{char: ' '})
	}
	s.rows[s.y][x] = c
}

// control carries out the sequences that renderers of whole screens use.
func (s *screen) control(parameters string, command byte) {
	first, second, _ := strings.Cut(parameters, ";")
	n, _ := strconv.Atoi(first)
	column, _ := strconv.Atoi(second)
	switch command {
	case 'm':
		s.now.change(parameters)
	case 'A':
		s.y = max(0, s.y-max(1, n))
	case 'B':
		s.y = min(s.height-1, s.y+max(1, n))
	case 'C':
		s.x += max(1, n)
	case 'D':
		s.x = max(0, s.x-max(1, n))
	case 'G', '`':
		s.x = max(0, n-1)
	case 'H':
		s.y, s.x = min(s.height-1, max(0, n-1)), max(0, column-1)
	case 'r':
		s.top, s.bottom = max(0, n-1), s.height-1
		if column > s.top+1 {
			s.bottom = min(column, s.height) - 1
		}
		s.x, s.y = 0, 0
	case 'd':
		s.y = min(s.height-1, max(0, n-1))
	case 'X': // erase characters
		for x := s.x; x < min(s.x+max(1, n), columns); x++ {
			s.set(x, cellOf{look{background: s.now.background}, ' '})
		}
	case 'b': // repeat the last one
		if s.x > 0 {
			s.write(strings.Repeat(string(s.rows[s.y][s.x-1].char), max(1, n)))
		}
	case 'K':
		if n == 1 {
			for x := range min(s.x+1, columns) {
				s.set(x, cellOf{char: ' '})
			}
			return
		}
		s.rows[s.y] = s.rows[s.y][:min(len(s.rows[s.y]), s.x)]
	case 'J':
		if n == 2 {
			clear(s.rows)
			return
		}
		s.control("", 'K')
		clear(s.rows[s.y+1:])
	}
}

// lines returns the rows up to the last one with text.
func (s *screen) lines() (out [][]run) {
	last := 0 // row with text
	for i, row := range s.rows {
		var runs []run
		for _, c := range row {
			if n := len(runs); n > 0 && runs[n-1].look == c.look {
				runs[n-1].text += string(c.char)
			} else {
				runs = append(runs, run{c.look, string(c.char)})
			}
		}
		out = append(out, runs)
		for _, r := range runs {
			if strings.TrimSpace(r.text) != "" {
				last = i + 1
			}
		}
	}
	return out[:last]
}
