package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/nftproxy/nftproxy/internal/atomicfile"
	"github.com/nftproxy/nftproxy/internal/budget"
)

var errLong = fmt.Errorf("is larger than %d MiB: split it into several files", budget.FileSize>>20)

// ReadFile reads a file of objects. What cannot be one is not read to its end: a file that is
// larger than [budget.FileSize], or that holds a NUL. A pipe or a device is an
// [atomicfile.ErrNotRegular].
func ReadFile(path string) ([]byte, error) {
	f, info, err := atomicfile.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info.Size() > budget.FileSize {
		return nil, errLong
	}
	return read(f, info.Size())
}

// Read is like [ReadFile] for a stream.
func Read(r io.Reader) ([]byte, error) { return read(r, 0) }

func read(r io.Reader, size int64) ([]byte, error) {
	data := make([]byte, 0, max(bytes.MinRead, size+1))
	for {
		n, err := r.Read(data[len(data):cap(data)])
		if i := bytes.IndexByte(data[len(data):len(data)+n], 0); i >= 0 && !isUTF16(data[:len(data)+n]) {
			line := 1 + bytes.Count(data[:len(data)+i], []byte("\n"))
			return nil, fmt.Errorf("line %d holds a NUL: the file is no text", line)
		}
		data = data[:len(data)+n]
		switch {
		case len(data) > budget.FileSize:
			return nil, errLong
		case errors.Is(err, io.EOF):
			return data, nil
		case err != nil:
			return nil, err
		case len(data) == cap(data):
			data = append(data, 0)[:len(data)]
		}
	}
}

// isUTF16 reports whether a text begins with the mark of UTF-16, which [Split] reports.
func isUTF16(data []byte) bool {
	return bytes.HasPrefix(data, []byte("\xff\xfe")) || bytes.HasPrefix(data, []byte("\xfe\xff"))
}

// separators can follow a value in a list or an object of YAML: a comma, or a line end.
var separators = [][]byte{{','}, {'\n'}, {'\r'}, []byte("\u0085"), []byte("\u2028"), []byte("\u2029")}

// tooLarge returns why the text of an object is not parsed; nil: it is. Each value takes some
// hundred bytes of memory when it is parsed, even if it is short in the text.
func tooLarge(text []byte, json bool) error {
	if len(text) > budget.FileObject {
		return fmt.Errorf("the object is larger than %d MiB", budget.FileObject>>20)
	}
	n, after := 0, separators
	if json {
		after = separators[:1]
	} else {
		n -= bytes.Count(text, []byte("\r\n"))
	}
	for _, s := range after {
		n += bytes.Count(text, s)
	}
	if n > budget.FileValues {
		return fmt.Errorf("the object has more than %d lines and commas", budget.FileValues)
	}
	return nil
}
