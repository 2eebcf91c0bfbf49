package budget

// Bytes that a value of a JSON document has at least, on average, and what a small document may have
// without: a list of empty objects would otherwise take a hundred times its size when it is decoded.
const (
	objectBytes = 16
	valueBytes  = 4
	smallValues = 4096
)

// IsDense reports whether the objects, lists and nulls of a JSON document are so small and many that
// decoding it into structures takes many times its size, and whether its values are, for decoding it into
// maps. Answers of a node are neither.
func IsDense(document []byte) (structures, values bool) {
	objects, all := 0, 0
	text, escaped := false, false
	for _, c := range document {
		switch {
		case escaped:
			escaped = false
		case text:
			escaped = c == '\\'
			text = c != '"'
		case c == '"':
			text = true
		case c == '{' || c == '[':
			objects++
			all++
		case c == 'n': // null: other words outside of texts have none at their beginning
			objects++
		case c == ',':
			all++
		}
	}
	return objects > smallValues+len(document)/objectBytes, all > smallValues+len(document)/valueBytes
}
