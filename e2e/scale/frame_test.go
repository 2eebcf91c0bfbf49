package scale

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
)

// event is what a watcher has to know of a message.
type event int

const (
	object   event = iota // added, changed or deleted
	bookmark              // of a resource version
	complete              // the bookmark after the initial objects
)

// readEvent reads one message of a watch: its length, and a metav1.WatchEvent in
// protobuf, which begins with its type. Objects are discarded undecoded, so that
// thousands of watchers leave the processors to the API server.
func readEvent(r *bufio.Reader) (event, error) {
	length, err := r.Peek(4)
	if err != nil {
		return 0, err
	}
	size := int(binary.BigEndian.Uint32(length))
	if _, err := r.Discard(4); err != nil {
		return 0, err
	}
	const field = 0x0a // the first one, of variable length
	head, err := r.Peek(min(size, len("\n\x08BOOKMARK")))
	if err != nil {
		return 0, err
	}
	if len(head) < 2 || head[0] != field || len(head) < 2+int(head[1]) {
		return 0, fmt.Errorf("a message that begins with %q is no event in protobuf", head)
	}
	switch kind := string(head[2 : 2+head[1]]); kind {
	case "ADDED", "MODIFIED", "DELETED":
		_, err := r.Discard(size)
		return object, err
	case "BOOKMARK":
		message := make([]byte, size)
		if _, err := io.ReadFull(r, message); err != nil {
			return 0, err
		}
		if bytes.Contains(message, []byte("k8s.io/initial-events-end")) {
			return complete, nil
		}
		return bookmark, nil
	default:
		message := make([]byte, size)
		_, _ = io.ReadFull(r, message)
		return 0, fmt.Errorf("the API server ends a watch with %s: %q", kind, message)
	}
}
