// Package guest measures on the kernels of Debian releases: a program runs itself in a virtual
// machine in which time is counted in instructions, so that the figures do not depend on other
// load. They compare only with each other: an instruction takes a nanosecond there, also one that
// waits for memory.
package guest

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/test/debian"
)

// First and inside are the arguments of the first process of a virtual machine, and of the
// process that it starts.
const (
	first  = "guest"
	inside = "inside"
)

const (
	arguments = "/arguments.json"
	found     = "/tmp/results.json"
)

// Machine describes a virtual machine for a program.
type Machine struct {
	Release  debian.Release
	Packages debian.Set
	Programs map[string]string // files of this machine, by their names there
}

// Measure runs this program with arguments in the virtual machine, and returns the results.
func (m *Machine) Measure(ctx context.Context, args []string) ([]byte, error) {
	system, err := debian.Unpack(ctx, m.Release, m.Packages)
	if err != nil {
		return nil, err
	}
	work, err := os.MkdirTemp("", "nftproxy-machine-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(work)
	initrd, answers := filepath.Join(work, "initrd"), filepath.Join(work, "answers")
	if err := m.write(initrd, system, args); err != nil {
		return nil, err
	}
	if err := system.BootCounting(ctx, initrd, first, answers, os.Stderr); err != nil {
		return nil, err
	}
	results, err := os.ReadFile(answers)
	if err != nil || !json.Valid(results) {
		return nil, errors.Join(errors.New("the virtual machine did not report: see what it printed"), err)
	}
	return results, nil
}

// write makes the initial file system.
func (m *Machine) write(path string, system debian.System, args []string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	list, err := json.Marshal(args)
	if err != nil {
		return err
	}
	return debian.WriteImage(path, func(i *debian.Image) error {
		err := errors.Join(i.AddTree(system.Root(), "/"), i.Add(self, "/init"), i.AddContent(arguments, 0o644, string(list)))
		for name, file := range m.Programs {
			err = errors.Join(err, i.Add(file, name))
		}
		return err
	})
}

// Arguments returns the flags that are set, for the program in the virtual machine, without some.
func Arguments(flags *flag.FlagSet, without ...string) (args []string) {
	flags.Visit(func(f *flag.Flag) {
		if !slices.Contains(without, f.Name) {
			args = append(args, "-"+f.Name+"="+f.Value.String())
		}
	})
	return args
}

// Serve does what a program has to do in a virtual machine, and reports whether it is in one. The
// function measures with arguments, and writes the results to the file that -o names.
func Serve(args []string, measure func(args []string) error) (done bool, err error) {
	switch {
	case slices.Equal(args, []string{first}):
		debian.Init(inside)
		return true, nil
	case slices.Equal(args, []string{inside}):
		return true, report(measure)
	}
	return false, nil
}

// report measures, and reports on the second serial port.
func report(measure func(args []string) error) error {
	list, err := os.ReadFile(arguments)
	if err != nil {
		return err
	}
	var args []string
	if err := json.Unmarshal(list, &args); err != nil {
		return err
	}
	// Until the kernel's random numbers have a seed, each of them takes much longer, and a connection
	// needs several.
	if _, err := unix.Getrandom(make([]byte, 1), 0); err != nil {
		return os.NewSyscallError("getrandom", err)
	}
	fmt.Println("measure", strings.Join(args, " "))
	if err := measure(append(args, "-o", found)); err != nil {
		return err
	}
	in, err := os.Open(found)
	if err != nil {
		return err
	}
	defer in.Close()
	port, err := os.OpenFile(debian.AnswersPort(), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = io.Copy(port, in)
	return errors.Join(err, port.Close())
}
