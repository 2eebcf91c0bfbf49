package deploy_test

import (
	"regexp"
	"strings"
	"testing"
)

// Like kube-proxy's image, ours has the program under the name kube-proxy, too.
// It is built like "make build" does, with the Go version of go.mod (14.9).
func TestDockerfile(t *testing.T) {
	text := string(read(t, "Dockerfile"))
	_, final, ok := strings.Cut(text, "\nFROM scratch\n")
	if !ok {
		t.Fatal("the image is not from scratch")
	}
	for _, want := range []string{"COPY --from=build /out/ /usr/local/bin/\n", "ENTRYPOINT [\"/usr/local/bin/nftproxy\"]\n"} {
		if !strings.Contains(final, want) {
			t.Errorf("no %q", want)
		}
	}
	if !strings.Contains(text, "RUN ln -s nftproxy /out/kube-proxy\n") {
		t.Error("no kube-proxy")
	}
	goVersion := regexp.MustCompile(`(?m)^go (1\.[0-9]+)`).FindStringSubmatch(string(read(t, "../go.mod")))[1]
	if !strings.Contains(text, "FROM --platform=$BUILDPLATFORM golang:"+goVersion+" AS build\n") {
		t.Errorf("not built with Go %s of go.mod, on the builder's platform", goVersion)
	}
	flags := regexp.MustCompile(`-trimpath -ldflags "-s -w `)
	if ours, make := flags.FindString(text), flags.FindString(string(read(t, "../Makefile"))); ours == "" || ours != make {
		t.Errorf("flags %q, in the Makefile %q", ours, make)
	}
}
