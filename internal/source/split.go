package source

import "bytes"

// chunk is a part of a stream between two document markers.
type chunk struct {
	text []byte
	line int // of its first line in the file, counted from 1
}

// splitDocuments cuts a stream at the lines "---" and "...", so that a broken
// document does not hide what is wrong with the next one. YAML allows no other
// use of these lines, and JSON none at all.
func splitDocuments(data []byte) []chunk {
	var out []chunk
	start, startLine, line := 0, 1, 0
	directives := false // nothing but directives so far: "---" still belongs to them
	for pos := 0; pos < len(data); {
		end := lineEnd(data, pos)
		text := data[pos:end]
		line++
		switch {
		case isMarker(text, "---") && !directives:
			out = append(out, chunk{data[start:pos], startLine})
			start, startLine = pos, line
		case isMarker(text, "..."):
			out = append(out, chunk{data[start:pos], startLine})
			start, startLine = end, line+1
		}
		directives = keepsDirectives(text, directives, pos == start)
		pos = end
	}
	return append(out, chunk{data[start:], startLine})
}

func keepsDirectives(line []byte, before, first bool) bool {
	trimmed := bytes.TrimSpace(line)
	if bytes.HasPrefix(line, []byte("%")) {
		return before || first
	}
	return before && (len(trimmed) == 0 || trimmed[0] == '#')
}

func isMarker(line []byte, marker string) bool {
	rest, ok := bytes.CutPrefix(line, []byte(marker))
	return ok && (len(rest) == 0 || bytes.IndexByte([]byte(" \t\r\n"), rest[0]) >= 0)
}

// lineEnd returns the offset after the line that begins at pos.
func lineEnd(data []byte, pos int) int {
	if i := bytes.IndexByte(data[pos:], '\n'); i >= 0 {
		return pos + i + 1
	}
	return len(data)
}

// countLines returns how many lines end in text.
func countLines(text []byte) int { return bytes.Count(text, []byte("\n")) }
