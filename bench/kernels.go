package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/nftproxy/nftproxy/bench/guest"
	"github.com/nftproxy/nftproxy/bench/results"
	"github.com/nftproxy/nftproxy/test/debian"
)

// measureOn runs this program with arguments on kernels of Debian, at the same time, and writes
// all results to one file.
func measureOn(ctx context.Context, kernels, args []string, out string) error {
	found, errs := make([]*results.File, len(kernels)), make([]error, len(kernels))
	var all sync.WaitGroup
	for i, k := range kernels {
		all.Go(func() { found[i], errs[i] = measureOne(ctx, k, args) })
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	sum := found[0]
	for _, f := range found[1:] {
		sum.Machine.Kernel += ", " + f.Machine.Kernel
		sum.Records = append(sum.Records, f.Records...)
	}
	if out == "" {
		return nil // the virtual machines have printed them
	}
	return sum.Write(out)
}

func measureOne(ctx context.Context, kernel string, args []string) (*results.File, error) {
	release, err := debian.ReleaseOf(kernel, runtime.GOARCH)
	if err != nil {
		return nil, err
	}
	m := guest.Machine{Release: release, Packages: debian.Userland}
	text, err := m.Measure(ctx, append(slices.Clone(args), "-place", "kernel "+kernel))
	if err != nil {
		return nil, fmt.Errorf("kernel %s: %w", kernel, err)
	}
	f := &results.File{}
	if err := json.Unmarshal(text, f); err != nil {
		return nil, fmt.Errorf("kernel %s: %w", kernel, err)
	}
	if !strings.HasPrefix(f.Machine.Kernel, kernel+".") {
		return nil, fmt.Errorf("the virtual machine runs kernel %s instead of %s", f.Machine.Kernel, kernel)
	}
	return f, nil
}

// guestArguments returns the arguments that the program in the virtual machine gets.
func guestArguments(flags *flag.FlagSet) (args []string) {
	flags.Visit(func(f *flag.Flag) {
		if f.Name != "kernels" && f.Name != "o" {
			args = append(args, "-"+f.Name+"="+f.Value.String())
		}
	})
	return args
}
