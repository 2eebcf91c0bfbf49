package main

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"time"
)

// haproxy is HAProxy in TCP mode.
type haproxy struct {
	// redispatch makes it try another server if one cannot be reached.
	redispatch bool
	// splice makes it move data in the kernel, where it can.
	splice bool
}

func (h haproxy) name() string {
	switch {
	case h.redispatch:
		return "HAProxy with redispatch"
	case h.splice:
		return "HAProxy with splice"
	}
	return "HAProxy"
}
func (haproxy) program() string { return "haproxy" }
func (haproxy) version() string { return version(2, "haproxy", "-v") }

func (h haproxy) measures() []string {
	switch {
	case h.redispatch:
		return []string{"failover"}
	case h.splice:
		return []string{"traffic"}
	}
	return measures
}

func (h haproxy) start(r *room, s setting) (running, error) {
	if err := r.write("haproxy.cfg", h.config(r, s)); err != nil {
		return nil, err
	}
	c, err := r.daemon(r.Node, "haproxy", "-W", "-f", r.file("haproxy.cfg"))
	if err != nil {
		return nil, err
	}
	reloads := 0
	return process{[]*child{c}, []way{
		{"runtime API", func(s setting, i, j int, _ netip.AddrPort) error {
			e := s.services[i].endpoints[j]
			return h.command(r, fmt.Sprintf("set server service-%d/b%d addr %s port %d", i, j, e.Addr(), e.Port()))
		}},
		{"reload", func(s setting, _, _ int, _ netip.AddrPort) error {
			// It ignores a signal during a reload.
			if err := eventually(func() error { return h.reloaded(r, reloads) }); err != nil {
				return err
			}
			reloads++
			if err := r.write("haproxy.cfg", h.config(r, s)); err != nil {
				return err
			}
			return c.cmd.Process.Signal(syscall.SIGUSR2)
		}},
	}}, nil
}

func (h haproxy) config(r *room, s setting) string {
	var text strings.Builder
	fmt.Fprintf(&text, `global
	stats socket %s mode 600 level admin expose-fd listeners
	maxconn 4000
defaults
	mode tcp
	balance roundrobin
	timeout connect 1s
	timeout client 1m
	timeout server 1m
`, r.file("haproxy.sock"))
	switch {
	case h.redispatch:
		text.WriteString("\toption redispatch 1\n")
	case h.splice:
		text.WriteString("\toption splice-auto\n")
	}
	check := ""
	if s.checked {
		check = fmt.Sprintf(" check inter %s rise %d fall %d", checkInterval, checkRise, checkFall)
		text.WriteString("\ttimeout check 1s\n")
	}
	for i, own := range s.services {
		fmt.Fprintf(&text, "listen service-%d\n\tbind %s\n", i, own.to)
		for j, e := range own.endpoints {
			fmt.Fprintf(&text, "\tserver b%d %s%s\n", j, e, check)
		}
	}
	return text.String()
}

// reloaded returns an error unless so many reloads have ended.
func (haproxy) reloaded(r *room, reloads int) error {
	log, err := os.ReadFile(r.file("haproxy.log"))
	if ended := strings.Count(string(log), "Former worker"); err == nil && ended < reloads {
		err = fmt.Errorf("%d of %d reloads have ended", ended, reloads)
	}
	return err
}

// command sends a command to the worker.
func (haproxy) command(r *room, text string) error {
	r.acted = time.Now()
	c, err := net.DialTimeout("unix", r.file("haproxy.sock"), patience)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(c, text); err != nil {
		return err
	}
	answer, err := io.ReadAll(c)
	if err == nil && !strings.Contains(string(answer), "changed from") {
		err = fmt.Errorf("HAProxy: %s", answer)
	}
	return err
}
