package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nflog"
	"github.com/nftproxy/nftproxy/internal/preflight"
	"github.com/nftproxy/nftproxy/test/debian"
)

const jobsCommand = "jobs"

// runJobs runs the jobs and reports on the second serial port.
func runJobs() error {
	list, err := os.ReadFile(guestJobs)
	if err != nil {
		return err
	}
	var jobs []job
	if err := json.Unmarshal(list, &jobs); err != nil {
		return err
	}
	port, err := os.OpenFile(debian.AnswersPort(), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	report := json.NewEncoder(port)
	kernel, nft, err := versions("nft")
	if err != nil {
		return err
	}
	began := time.Now()
	if err := loadModules(); err != nil {
		return fmt.Errorf("load modules: %w", err)
	}
	fmt.Printf("%.1f s to load modules\n", time.Since(began).Seconds())
	for _, j := range jobs {
		fmt.Printf("%s on %s\n", j.Package, kernel)
		r := j.run(context.Background(), guestSource, guestPrograms, nil, os.Stdout)
		r.Kernel, r.Nft = kernel, nft
		fmt.Printf("%s: %d passed, %.1f s\n", j.Package, r.Passed, r.Seconds)
		if err := report.Encode(r); err != nil {
			return err
		}
	}
	return port.Close()
}

// loadModules asks the kernel for all that the rules need: it loads a module for each answer,
// which takes an emulated machine longer than tests wait for a daemon.
func loadModules() error {
	if _, err := preflight.Check(model.Families[:], preflight.Use{Observe: true, Relay: true}); err != nil {
		return err
	}
	log, err := nflog.Open(model.DefaultObserveGroup)
	if err != nil {
		return err
	}
	return log.Close()
}

// versions returns the versions of the kernel and of a program nft.
func versions(nft string) (kernel, version string, err error) {
	out, err := output(exec.Command(nft, "--version"))
	if err != nil {
		return "", "", err
	}
	words := strings.Fields(out) // nftables v1.0.6 (Lester Gooch #5)
	if len(words) < 2 {
		return "", "", fmt.Errorf("nft calls its version %q", out)
	}
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return "", "", err
	}
	return unix.ByteSliceToString(name.Release[:]), words[0] + " " + words[1], nil
}
