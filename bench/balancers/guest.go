package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/nftproxy/nftproxy/test/debian"
)

// packages are the programs in the virtual machine, whose kernel has IPVS.
var packages = debian.Set{Name: "-balancers", Packages: []string{"nftables", "nftlb", "haproxy", "ipvsadm", "keepalived"}}

const (
	guestCommand = "guest"  // the first process of a virtual machine
	insideOf     = "inside" // what it starts
	guestPlan    = "/arguments.json"
	guestProgram = "/nftproxy"
	virtualPlace = "virtual machine"
)

// measureInMachine runs this program with arguments in a virtual machine that is
// emulated in software, and writes the results to a file.
func measureInMachine(ctx context.Context, args []string, out string) error {
	system, err := debian.Unpack(ctx, debian.Releases[len(debian.Releases)-1], packages)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "nftproxy-balancers-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	initrd, answers := filepath.Join(work, "initrd"), filepath.Join(work, "answers")
	if err := writeGuest(initrd, system, args); err != nil {
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

func writeGuest(path string, system debian.System, args []string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	list, err := json.Marshal(args)
	if err != nil {
		return err
	}
	return debian.WriteImage(path, func(i *debian.Image) error {
		return errors.Join(i.AddTree(system.Root(), "/"), i.Add(self, "/init"), i.Add(nftproxyPath, guestProgram),
			i.AddContent(guestPlan, 0o644, string(list)))
	})
}

// insideCommand measures in the virtual machine, and reports on its second serial
// port.
func insideCommand([]string) error {
	list, err := os.ReadFile(guestPlan)
	if err != nil {
		return err
	}
	var args []string
	if err := json.Unmarshal(list, &args); err != nil {
		return err
	}
	const found = "/tmp/results.json"
	args = append(args, "-nftproxy", guestProgram, "-place", virtualPlace, "-o", found)
	fmt.Println("balancers", strings.Join(args, " "))
	if err := measureCommand(context.Background(), args); err != nil {
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
