// Package guest runs a benchmark in a virtual machine that qemu emulates and in which
// time is counted in instructions: each takes a nanosecond. Other load on this machine
// does not matter there, and the figures compare only with each other.
package guest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/bench/report"
	"github.com/nftproxy/nftproxy/test/debian"
)

const (
	guestCommand = "guest"  // the first process of a virtual machine
	insideOf     = "inside" // what it starts
	guestPlan    = "/arguments.json"
	guestProgram = "/nftproxy"
)

// Measure runs this program with arguments in a virtual machine with some packages and a
// program nftproxy, and writes the results to a file.
func Measure(ctx context.Context, packages debian.Set, nftproxy string, args []string, out string) error {
	system, err := debian.Unpack(ctx, debian.Releases[len(debian.Releases)-1], packages)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "nftproxy-virtual-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	initrd, answers := filepath.Join(work, "initrd"), filepath.Join(work, "answers")
	if err := writeGuest(initrd, system, nftproxy, args); err != nil {
		return err
	}
	if err := system.BootCounting(ctx, initrd, guestCommand, answers, os.Stderr); err != nil {
		return err
	}
	found, err := os.ReadFile(answers)
	if err != nil || !json.Valid(found) {
		return errors.Join(errors.New("the virtual machine did not report: see what it printed"), err)
	}
	if out == "" {
		return nil
	}
	return os.WriteFile(out, found, 0o644)
}

func writeGuest(path string, system debian.System, nftproxy string, args []string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	list, err := json.Marshal(args)
	if err != nil {
		return err
	}
	return debian.WriteImage(path, func(i *debian.Image) error {
		return errors.Join(i.AddTree(system.Root(), "/"), i.Add(self, "/init"), i.Add(nftproxy, guestProgram),
			i.AddContent(guestPlan, 0o644, string(list)))
	})
}

// Main does what a program has to do in the virtual machine, and reports whether the
// arguments of the program ask for that. measure gets the arguments given to [Measure],
// and others: -nftproxy, -place and -o.
func Main(args []string, measure func(args []string) error) (bool, error) {
	switch {
	case slices.Equal(args, []string{guestCommand}):
		debian.Init(insideOf)
		return true, nil
	case slices.Equal(args, []string{insideOf}):
		return true, inside(measure)
	}
	return false, nil
}

// inside measures, and reports on the second serial port.
func inside(measure func(args []string) error) error {
	list, err := os.ReadFile(guestPlan)
	if err != nil {
		return err
	}
	var args []string
	if err := json.Unmarshal(list, &args); err != nil {
		return err
	}
	const found = "/tmp/results.json"
	args = append(args, "-nftproxy", guestProgram, "-place", report.VirtualMachine, "-o", found)
	fmt.Println("measure", strings.Join(args, " "))
	if err := measure(args); err != nil {
		return err
	}
	in, err := os.Open(found)
	if err != nil {
		return err
	}
	defer in.Close()
	port, err := os.OpenFile(debian.AnswersPort, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = io.Copy(port, in)
	return errors.Join(err, port.Close())
}
