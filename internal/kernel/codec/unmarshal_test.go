package codec

import (
	"testing"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// TestUnmarshal: a value that is too short for the library is an error.
func TestUnmarshal(t *testing.T) {
	if err := unmarshal(unix.NFPROTO_IPV4, []byte{4, 0, 1 /* its number */, 0}, new(expr.Connlimit)); err == nil {
		t.Error("a limit of connections without its number is decoded")
	}
}
