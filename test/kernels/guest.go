package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"

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
