package host

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestUnwatched: the log says what to do where addresses cannot be watched.
func TestUnwatched(t *testing.T) {
	for err, want := range map[error]string{
		unix.EMFILE: "LimitNOFILE", unix.EAFNOSUPPORT: "RestrictAddressFamilies", unix.EPERM: "AF_NETLINK", unix.ENOBUFS: "memory", unix.EINVAL: "see the error",
	} {
		var log bytes.Buffer
		logUnwatched(slog.New(slog.NewTextHandler(&log, nil)), fmt.Errorf("subscribe: %w", err))
		if text := log.String(); !strings.Contains(text, want) || !strings.Contains(text, "the known ones stay in use") {
			t.Errorf("%v: %s", err, text)
		}
	}
}
