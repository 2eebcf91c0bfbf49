package release

import (
	"bytes"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
)

// top is the repository, seen from this directory.
const top = "../.."

// hub is a registry with the release, and the repositories that ghcr.io has.
type hub struct {
	*testing.T
	http.Handler
	port    string
	work    string // keys
	dist    string // a copy of the files of the release
	changed atomic.Bool

	mu     sync.Mutex
	pulled map[string]int // blobs, by the address that asked for them
}

// serve starts a registry on the loopback interface of this machine.
func serve(t *testing.T) *hub {
	t.Helper()
	h := &hub{T: t, work: t.TempDir(), pulled: map[string]int{},
		Handler: registry.New(registry.WithReferrersSupport(true), registry.Logger(log.New(io.Discard, "", 0)))}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, h.port, _ = net.SplitHostPort(listener.Addr().String())
	h.on(listener)
	return h
}

// on serves at another listener as well.
func (h *hub) on(listener net.Listener) {
	server := &http.Server{Handler: http.HandlerFunc(h.answer)}
	go server.Serve(listener) //nolint:errcheck // it ends with the test
	h.Cleanup(func() { server.Close() })
}

// own is what takes the place of ghcr.io in commands on a machine with the registry.
func (h *hub) own() string { return "127.0.0.1:" + h.port }

// answer counts the blobs, and answers with another index than the one that was asked for as
// long as changed is set, of the same length.
func (h *hub) answer(w http.ResponseWriter, r *http.Request) {
	if host, _, _ := net.SplitHostPort(r.RemoteAddr); r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") {
		h.mu.Lock()
		h.pulled[host]++
		h.mu.Unlock()
	}
	if !h.changed.Load() || !strings.Contains(r.URL.Path, "/manifests/") {
		h.Handler.ServeHTTP(w, r)
		return
	}
	was := httptest.NewRecorder()
	h.Handler.ServeHTTP(was, r)
	maps.Copy(w.Header(), was.Header())
	w.WriteHeader(was.Code)
	w.Write(bytes.ReplaceAll(was.Body.Bytes(), []byte(`"os":"linux"`), []byte(`"os":"minix"`))) //nolint:errcheck // the client has gone
}

// publish signs and publishes a release with a new key.
func (h *hub) publish(dist string) {
	h.Helper()
	h.must(top+"/scripts/try-signer", h.work, "release")
	h.dist = filepath.Join(h.work, "dist")
	h.must("cp", "-r", dist, h.dist)
	h.must(top+"/scripts/publish", h.dist, h.own()+"/nftproxy", "--key="+h.work+"/release.key",
		"--signing-config="+h.work+"/none.json", "--trusted-root="+h.work+"/root.json")
}

// verify runs the commands of docs/verify.md, and returns the digest of the image that they
// have verified.
func (h *hub) verify() string {
	h.Helper()
	h.Setenv("REGISTRY", h.own()+"/nftproxy")
	h.Setenv("SIGNER", "--key="+h.work+"/release.pub --insecure-ignore-tlog --trusted-root="+h.work+"/root.json")
	out := h.must(top+"/scripts/verify", h.dist)
	digest := regexp.MustCompile(`\+ IMAGE=\S+@(sha256:[0-9a-f]{64})\n`).FindStringSubmatch(out)
	if digest == nil {
		h.Fatalf("docs/verify.md verifies no image:\n%s", out)
	}
	return digest[1]
}

// must runs a command on this machine that has to succeed, and returns all that it prints.
func (h *hub) must(name string, args ...string) string {
	h.Helper()
	cmd := exec.CommandContext(h.Context(), name, args...)
	// No key has a password, and no configuration of the user is used.
	cmd.Env = append(os.Environ(), "COSIGN_PASSWORD=", "DOCKER_CONFIG="+h.work, "HELM_REGISTRY_CONFIG="+h.work+"/helm.json")
	out, err := cmd.CombinedOutput()
	if err != nil {
		h.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	return string(out)
}

// pulls returns how many blobs an address has asked for.
func (h *hub) pulls(address string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.pulled[address]
}
