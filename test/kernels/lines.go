package main

import (
	"bytes"
	"io"
	"sync"
)

// lines writes whole lines with a prefix, so that several can share an output.
type lines struct {
	prefix string
	out    io.Writer
	shared *sync.Mutex
	rest   []byte // of a line that is not complete
}

func (l *lines) Write(b []byte) (int, error) {
	l.shared.Lock()
	defer l.shared.Unlock()
	l.rest = append(l.rest, b...)
	for {
		line, rest, ok := bytes.Cut(l.rest, []byte("\n"))
		if !ok {
			return len(b), nil
		}
		l.rest = rest
		if _, err := l.out.Write(append([]byte(l.prefix), append(line, '\n')...)); err != nil {
			return 0, err
		}
	}
}
