package systemd

import (
	"net"
	"path/filepath"
	"testing"
	"time"
)

// TestForget: 4.84. Forget sends a message to systemd for a listener that systemd keeps, and none for any
// other: without a relay there is no message.
func TestForget(t *testing.T) {
	at := filepath.Join(t.TempDir(), "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: at, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	t.Setenv("NOTIFY_SOCKET", at)
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := NewStore()
	for _, err := range []error{s.Forget("a"), s.Forget("b"), s.Keep("b", l.(*net.TCPListener)), s.Forget("b"), s.Forget("b"), s.Keep("c", l.(*net.TCPListener))} {
		if err != nil {
			t.Error(err)
		}
	}
	for _, want := range []string{"FDSTORE=1\nFDNAME=b", "FDSTOREREMOVE=1\nFDNAME=b", "FDSTORE=1\nFDNAME=c"} {
		text := make([]byte, 100)
		if err := socket.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		n, err := socket.Read(text)
		if got := string(text[:n]); err != nil || got != want {
			t.Fatalf("%q, %v, want %q", got, err, want)
		}
	}
}
