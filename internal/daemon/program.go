package daemon

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"os"
)

// program identifies the program that runs.
func program() ([]byte, error) {
	f, err := os.Open("/proc/self/exe") // the same file also when another one has its name
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return identify(f)
}

// headerBytes is where the go command looks for the build ID in a program (readELF in
// cmd/internal/buildid).
const headerBytes = 32 << 10

// identify returns the build ID of a program, the last part of which is a hash of all that the
// linker wrote; or a hash of the whole file, if it was linked without one. That takes thousands
// of times as long (BenchmarkProgram).
func identify(f io.Reader) ([]byte, error) {
	head := make([]byte, headerBytes)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, err
	}
	head = head[:n]
	if id := buildID(head); id != nil {
		return id, nil
	}
	h := sha256.New()
	if _, err := io.Copy(h, io.MultiReader(bytes.NewReader(head), f)); err != nil {
		return nil, err
	}
	return h.Sum(nil), nil
}

// buildID returns the content of the ELF note that the linker writes (ELF_NOTE_GOBUILDID_TAG in
// cmd/link); nil if there is none, or another text, which a builder may choose for all
// programs.
func buildID(head []byte) []byte {
	kind := binary.NativeEndian.AppendUint32(nil, 4)
	i := bytes.Index(head, append(kind, "Go\x00\x00"...))
	if i < 8 { // the lengths of the name and of the content are before the kind
		return nil
	}
	length, content := binary.NativeEndian.Uint32(head[i-4:]), head[i+8:]
	if uint64(length) > uint64(len(content)) {
		return nil
	}
	// Of the inputs and of the output, of the main package and of the program.
	if id := content[:length]; bytes.Count(id, []byte("/")) == 3 {
		return id
	}
	return nil
}
