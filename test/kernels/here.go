package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/nftproxy/nftproxy/test/debian"
)

// runHere runs the golden tests on the kernel of this machine, with the nft of
// a release.
func (s *suite) runHere(ctx context.Context, sys debian.System, out io.Writer) (result, error) {
	bin := filepath.Join(s.work, sys.Codename)
	if err := os.Mkdir(bin, 0o755); err != nil {
		return result{}, err
	}
	nft := filepath.Join(bin, "nft")
	// The libraries of the release need the loader that they came with.
	libraries, loader := sys.Libraries()
	script := fmt.Sprintf("#!/bin/sh\nexec '%s' --library-path '%s' '%s/usr/sbin/nft' \"$@\"\n", loader, libraries, sys.Root())
	// A program that the other machine starts meanwhile would inherit the file while it is
	// open for writing, and the kernel refuses to run such a file (ETXTBSY).
	syscall.ForkLock.RLock()
	err := os.WriteFile(nft, []byte(script), 0o755)
	syscall.ForkLock.RUnlock()
	if err != nil {
		return result{}, err
	}
	kernel, version, err := versions(nft)
	if err != nil {
		return result{}, err
	}
	source, err := os.Getwd()
	if err != nil {
		return result{}, err
	}
	fmt.Fprintf(out, "golden tests with %s on %s\n", version, kernel)
	j := job{Package: "golden", Args: []string{"-test.v", "-test.timeout=" + packageTimeout}}
	r := j.run(ctx, source, s.programs, []string{"PATH=" + bin + ":" + os.Getenv("PATH")}, out)
	r.Kernel, r.Nft = kernel, version
	return r, nil
}
