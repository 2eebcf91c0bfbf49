package main

import (
	"strconv"
	"strings"
)

// screen is the content of a terminal with a program that moves the cursor.
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
	m, _ := strconv.Atoi(second)
	switch command {
	case 'm':
		s.now.change(parameters)
	case 'r': // rows that scroll
		s.top, s.bottom = max(0, n-1), s.height-1
		if m > s.top+1 {
			s.bottom = min(m, s.height) - 1
		}
		s.x, s.y = 0, 0
	case 'b': // repeat the last character
		if s.x > 0 {
			s.write(strings.Repeat(string(s.rows[s.y][s.x-1].char), max(1, n)))
		}
	default:
		s.move(command, n, m)
		s.erase(command, n)
	}
}

// move moves the cursor.
func (s *screen) move(command byte, n, m int) {
	switch command {
	case 'A':
		s.y -= max(1, n)
	case 'B':
		s.y += max(1, n)
	case 'C':
		s.x += max(1, n)
	case 'D':
		s.x -= max(1, n)
	case 'G', '`':
		s.x = n - 1
	case 'd':
		s.y = n - 1
	case 'H':
		s.y, s.x = n-1, m-1
	case 'Z': // back to a tab stop
		for range max(1, n) {
			s.x = (s.x - 1) / 8 * 8
		}
	}
	s.x, s.y = max(0, s.x), min(max(0, s.y), s.height-1)
}

// erase erases characters or rows.
func (s *screen) erase(command byte, n int) {
	switch {
	case command == 'J' && n == 2:
		clear(s.rows)
	case command == 'J':
		s.erase('K', 0)
		clear(s.rows[s.y+1:])
	case command == 'X':
		for x := s.x; x < min(s.x+max(1, n), columns); x++ {
			s.set(x, cellOf{look{background: s.now.background}, ' '})
		}
	case command == 'K' && n == 1:
		for x := range min(s.x+1, columns) {
			s.set(x, cellOf{char: ' '})
		}
	case command == 'K':
		s.rows[s.y] = s.rows[s.y][:min(len(s.rows[s.y]), s.x)]
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
