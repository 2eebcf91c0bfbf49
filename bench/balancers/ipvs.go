package main

import (
	"fmt"
	"net/netip"
	"strings"
	"syscall"
)

// ipvs is IPVS with network address translation, set up by ipvsadm or by
// keepalived.
type ipvs struct{ keepalived bool }

func (i ipvs) name() string {
	if i.keepalived {
		return "IPVS with keepalived"
	}
	return "IPVS"
}

func (i ipvs) program() string {
	if i.keepalived {
		return "keepalived"
	}
	return "ipvsadm"
}

func (i ipvs) version() string {
	if i.keepalived {
		return version(1, "keepalived", "--version")
	}
	return version(1, "ipvsadm", "--version")
}

func (i ipvs) measures() []string {
	if i.keepalived {
		return []string{"services", "failover"}
	}
	return []string{"traffic", "services"}
}

func (i ipvs) start(r *room, s setting) (running, error) {
	// IPVS keeps the address of the client, and leaves masquerading to netfilter.
	if err := sysctl(r.Node, "net/ipv4/vs/conntrack", "1"); err != nil {
		return nil, err
	}
	const masquerade = "table ip masq { chain postrouting { type nat hook postrouting priority srcnat; ip daddr 10.128.0.0/16 masquerade; }; }"
	if err := r.run(r.Node, masquerade, "nft", "-f", "-"); err != nil {
		return nil, err
	}
	if i.keepalived {
		return i.startKeepalived(r, s)
	}
	var text strings.Builder
	for _, own := range s.services {
		fmt.Fprintf(&text, "-A -t %s -s rr\n", own.to)
		for _, e := range own.endpoints {
			fmt.Fprintf(&text, "-a -t %s -r %s -m\n", own.to, e)
		}
	}
	replace := func(s setting, n, j int, old netip.AddrPort) error {
		own := s.services[n]
		return r.run(r.Node, fmt.Sprintf("-d -t %s -r %s\n-a -t %s -r %s -m\n", own.to, old, own.to, own.endpoints[j]), "ipvsadm", "-R")
	}
	return idle{[]way{{"ipvsadm", replace}}}, r.run(r.Node, text.String(), "ipvsadm", "-R")
}

func (i ipvs) startKeepalived(r *room, s setting) (running, error) {
	if err := r.write("keepalived.conf", i.config(s)); err != nil {
		return nil, err
	}
	c, err := r.daemon(r.Node, "keepalived", "-n", "-l", "-D", "-C", "-f", r.file("keepalived.conf"),
		"-p", r.file("keepalived.pid"), "-c", r.file("checkers.pid"))
	if err != nil {
		return nil, err
	}
	return process{[]*child{c}, []way{{"reload", func(s setting, _, _ int, _ netip.AddrPort) error {
		if err := r.write("keepalived.conf", i.config(s)); err != nil {
			return err
		}
		return c.cmd.Process.Signal(syscall.SIGHUP)
	}}}}, nil
}

func (ipvs) config(s setting) string {
	var text strings.Builder
	text.WriteString("global_defs {\n\tscript_user root\n}\n")
	for _, own := range s.services {
		fmt.Fprintf(&text, "virtual_server %s %d {\n\tdelay_loop 1\n\tlb_algo rr\n\tlb_kind NAT\n\tprotocol TCP\n", own.to.Addr(), own.to.Port())
		for _, e := range own.endpoints {
			fmt.Fprintf(&text, "\treal_server %s %d {\n\t\tweight 1\n", e.Addr(), e.Port())
			if s.checked {
				// The first failure is followed by some more attempts.
				fmt.Fprintf(&text, "\t\tTCP_CHECK {\n\t\t\tconnect_timeout 1\n\t\t\tretry %d\n\t\t\tdelay_before_retry 1\n\t\t}\n", checkFall-1)
			}
			text.WriteString("\t}\n")
		}
		text.WriteString("}\n")
	}
	return text.String()
}
