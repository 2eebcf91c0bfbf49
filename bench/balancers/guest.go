package main

import (
	"context"
	"os"

	"github.com/nftproxy/nftproxy/bench/guest"
	"github.com/nftproxy/nftproxy/test/debian"
)

// packages are the programs in the virtual machine, whose kernel has IPVS.
var packages = debian.Set{Name: "-balancers", Packages: []string{"nftables", "nftlb", "haproxy", "ipvsadm", "keepalived"}}

const (
	guestProgram = "/nftproxy"
	virtualPlace = "virtual machine"
)

// measureInMachine runs this program with arguments in a virtual machine that is
// emulated in software, and writes the results to a file.
func measureInMachine(ctx context.Context, args []string, out string) error {
	m := guest.Machine{Release: debian.Newest(), Packages: packages, Programs: map[string]string{guestProgram: nftproxyPath}}
	found, err := m.Measure(ctx, append(args, "-nftproxy", guestProgram, "-place", virtualPlace))
	if err != nil || out == "" {
		return err
	}
	return os.WriteFile(out, found, 0o644)
}
