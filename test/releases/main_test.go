package main

import (
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
	"github.com/nftproxy/nftproxy/test/program"
)

// binary is nftproxy.
var binary string

func TestMain(m *testing.M) {
	os.Exit(program.Run(&binary, "../../cmd/nftproxy", m.Run))
}

// The upgrade to the same program passes (13.4).
func TestUpgrade(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	if err := run([]string{binary, binary}); err != nil {
		t.Error(err)
	}
}

// A node without rules fails requests, and the load sees it.
func TestLoadSeesFailures(t *testing.T) {
	lab := netlab.TestLab(t, 4)
	n := &node{lab: lab, file: t.TempDir() + "/services.yaml"}
	if err := errors.Join(lab.EchoOnPods(port), n.write(0), n.start(binary)); err != nil {
		t.Fatal(err)
	}
	defer n.kill()
	l := startLoad(lab)
	defer l.stop()
	if err := l.row(io.Discard, "serves"); err != nil {
		t.Fatal(err)
	}
	services, err := os.ReadFile(n.file)
	if err != nil {
		t.Fatal(err)
	}
	empty, _, _ := strings.Cut(string(services), "- {addresses:")
	if err := os.WriteFile(n.file, []byte(empty), 0o644); err != nil {
		t.Fatal(err)
	}
	netlab.Eventually(t, 20*time.Second, func() error {
		if err := l.row(io.Discard, "without endpoints"); err == nil {
			return errors.New("all requests are answered")
		}
		return nil
	})
}
