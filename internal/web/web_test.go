package web_test

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/web"
)

func get(path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	web.Handler().ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	return w
}

// TestPolicy: the policy allows exactly the style and the script of the page, by their
// hashes, and nothing from elsewhere (11.19).
func TestPolicy(t *testing.T) {
	w := get(web.Path)
	page, policy := w.Body.String(), w.Header().Get("Content-Security-Policy")
	if w.Code != 200 || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/html") {
		t.Fatalf("%d %v", w.Code, w.Header())
	}
	for _, tag := range []string{"style", "script"} {
		m := regexp.MustCompile(`(?s)<`+tag+`>(.*)</`+tag+`>`).FindAllStringSubmatch(page, -1)
		if len(m) != 1 || len(m[0][1]) < 1000 {
			t.Fatalf("%d elements %s", len(m), tag)
		}
		sum := sha256.Sum256([]byte(m[0][1]))
		if want := tag + "-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "';"; !strings.Contains(policy, want) {
			t.Errorf("no %q in %q", want, policy)
		}
	}
	for _, want := range []string{"default-src 'none'", "connect-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'", "require-trusted-types-for 'script'"} {
		if !strings.Contains(policy, want) {
			t.Errorf("no %q in %q", want, policy)
		}
	}
	if strings.Contains(policy, "unsafe") {
		t.Errorf("policy %q", policy)
	}
}

// TestSelfContained: the page loads nothing but itself and its data.
func TestSelfContained(t *testing.T) {
	page := get(web.Path).Body.String()
	for _, m := range regexp.MustCompile(`(?:https?:)?//[^\s'"]+`).FindAllString(page, -1) {
		if m != "http://www.w3.org/2000/svg" && !strings.HasPrefix(m, "// ") { // the name of a namespace
			t.Errorf("refers to %s", m)
		}
	}
	for _, not := range []string{"innerHTML", "eval(", "document.write", "style=", "onclick=", "{{"} {
		if strings.Contains(page, not) {
			t.Errorf("has %q", not)
		}
	}
	if len(page) > 40<<10 {
		t.Errorf("%d bytes", len(page))
	}
}

func TestNotFound(t *testing.T) {
	if w := get(web.Path + "page.js"); w.Code != 404 {
		t.Errorf("%d", w.Code)
	}
}
