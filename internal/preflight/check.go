// Package preflight asks the kernel for all features of the rules before the first rule
// is applied, and names the module or option that provides a missing one.
//
// It renders rules that use every feature, and tries them with [kernel.Conn.Try].
// Nothing becomes visible, and the generation of the ruleset does not change.
package preflight

import (
	"errors"
	"fmt"
	"strings"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/netlinkio"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
)

// Problem is a feature that this kernel lacks or does not permit.
type Problem struct {
	Feature string // in words
	Answer  error  // of the kernel; unwraps to the errno
	// Limits reports that only Services with connection limits need the feature.
	Limits bool
	// Relay reports that only Balances whose connections are relayed need the feature.
	Relay bool
	// Observe reports that only counters and logs of refused connections need the feature.
	Observe bool
	Remedy
}

// Remedy provides a feature; fields that do not apply are empty.
type Remedy struct {
	Module string // kernel module
	Option string // of the kernel's configuration, without CONFIG_
	Since  string // first kernel version that has it
}

// String names the missing feature and the remedy.
func (p Problem) String() string {
	if errors.Is(p.Answer, unix.EPERM) {
		return kernel.PermissionAdvice
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s: ", p.Feature, kernel.KernelMessage(p.Answer))
	switch {
	case p.Module != "":
		fmt.Fprintf(&b, "load the module %s, or use a kernel with CONFIG_%s", p.Module, p.Option)
	case p.Option != "":
		fmt.Fprintf(&b, "use a kernel with CONFIG_%s", p.Option)
	}
	if p.Since != "" {
		if p.Option != "" {
			b.WriteString(", and ")
		}
		fmt.Fprintf(&b, "use kernel %s or later", p.Since)
	}
	return b.String()
}

// Use says what is in use besides what all nodes need: modules for it are asked for, and loaded,
// only then.
type Use struct {
	Observe bool // refused connections are observed
	Relay   bool // connections may be relayed
}

// Check returns the features that are missing to serve the families, without ones that
// depend on another missing feature. After an error the kernel's features are unknown.
func Check(families []model.Family, use Use) (problems []Problem, err error) {
	for range patience {
		err = netlinkio.Retry(netlinkio.Fades, func() (err error) {
			problems, err = checkOnce(families, use)
			return err
		})
		if !netlinkio.Fades(err) {
			break
		}
	}
	return problems, err
}

// patience is how often all attempts are repeated: an error ends the start of the program,
// and a check receives dozens of answers, each of which can be lost.
const patience = 4

func checkOnce(families []model.Family, use Use) ([]Problem, error) {
	k, err := kernel.Open()
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return []Problem{{Feature: "netlink sockets of netfilter", Answer: err, Remedy: Remedy{Module: "nfnetlink", Option: "NETFILTER_NETLINK"}}}, nil
	}
	if err != nil {
		return nil, err
	}
	problems, err := check(conn{k}, families, use)
	return problems, errors.Join(err, k.Close())
}

// prober answers questions: the kernel, or a fake.
type prober interface {
	// Try returns the parts of a plan that the kernel refuses, and changes nothing.
	Try(*plan.Plan) ([]kernel.Refusal, error)
	// connections returns an error without access to connection tracking.
	connections() error
}

type conn struct{ *kernel.Conn }

// connections asks for the statistics of connection tracking, which are short. Without
// its module the kernel calls the question invalid.
func (conn) connections() error {
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return err
	}
	netlinkio.Renew(c)
	const getStatistics = 4 // IPCTNL_MSG_CT_GET_STATS_CPU of linux/netfilter/nfnetlink_conntrack.h
	_, err = c.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.NFNL_SUBSYS_CTNETLINK<<8 | getStatistics, Flags: netlink.Request | netlink.Dump},
		Data:   []byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, 0},
	})
	return errors.Join(err, c.Close())
}

func check(k prober, families []model.Family, use Use) ([]Problem, error) {
	refused, err := k.Try(plan.Diff(&nft.Ruleset{}, probeAll(families, use)))
	switch {
	case errors.Is(err, unix.EPERM):
		return []Problem{{Feature: "permission to change rules", Answer: err}}, nil
	case errors.Is(err, unix.EOPNOTSUPP):
		return []Problem{{Feature: "nf_tables", Answer: err, Remedy: Remedy{Module: "nf_tables", Option: "NF_TABLES"}}}, nil
	case err != nil:
		return nil, fmt.Errorf("ask the kernel for its features: %w", err)
	}
	var problems []Problem
	for _, f := range families {
		problems = append(problems, missingOf(f, refused)...)
	}
	switch err := k.connections(); {
	case errors.Is(err, unix.EINVAL):
		problems = append(problems, Problem{Feature: "access to connection tracking", Answer: err,
			Remedy: Remedy{Module: "nf_conntrack_netlink", Option: "NF_CT_NETLINK"}})
	case err != nil:
		return problems, fmt.Errorf("ask the kernel for its connections: %w", err)
	}
	return problems, nil
}
