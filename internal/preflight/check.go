package preflight

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/mdlayher/netlink"

	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/netlinkio"
	"golang.org/x/sys/unix"
)

// Problem is something that this kernel lacks, or does not let us use.
type Problem struct {
	Feature string // in words
	Answer  error  // of the kernel; unwraps to the errno
	Remedy
}

// Remedy is what brings a feature; what does not apply is empty.
type Remedy struct {
	Module string // kernel module
	Option string // of the kernel's configuration, without CONFIG_
	Since  string // first kernel version that has it
}

// String says what is missing, and what to do about it.
func (p Problem) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s: ", p.Feature, kernel.KernelMessage(p.Answer))
	switch {
	case errors.Is(p.Answer, unix.EPERM):
		return b.String() + "run as root, or with the capability CAP_NET_ADMIN"
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

// Check returns what is missing to serve the families. What a missing feature
// takes along is not named beside it. The error is one of the asking, and says
// nothing about the kernel's features.
func Check(families []model.Family) (problems []Problem, err error) {
	for attempt := range attempts {
		time.Sleep(time.Duration(attempt) * 10 * time.Millisecond)
		if problems, err = checkOnce(families); !netlinkio.Fades(err) || errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
	}
	return problems, err
}

// attempts is how often the kernel is asked while it lacks memory.
const attempts = 10

func checkOnce(families []model.Family) ([]Problem, error) {
	k, err := open()
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return []Problem{{"netlink sockets of netfilter", err, Remedy{Module: "nfnetlink", Option: "NETFILTER_NETLINK"}}}, nil
	}
	if err != nil {
		return nil, err
	}
	problems, err := check(k, families)
	return problems, errors.Join(err, k.close())
}

// prober is what answers.
type prober interface {
	// try has messages carried out one by one and then all of them taken back.
	// It returns the answer to each, nil for success. The error is that of the
	// whole, which the kernel did not even look at.
	try([]netlink.Message) ([]error, error)
	// request sends one request, which changes nothing.
	request(netlink.Message) error
}

func check(k prober, families []model.Family) ([]Problem, error) {
	answers, err := k.try(messages(families))
	switch {
	case errors.Is(err, unix.EPERM):
		return []Problem{{Feature: "permission to change rules", Answer: err}}, nil
	case errors.Is(err, unix.EOPNOTSUPP):
		return []Problem{{"nf_tables", err, Remedy{Module: "nf_tables", Option: "NF_TABLES"}}}, nil
	case err != nil:
		return nil, fmt.Errorf("ask the kernel for its features: %w", err)
	}
	problems := missing(families, answers)
	switch err := k.request(conntrackRequest()); {
	case errors.Is(err, unix.EINVAL):
		problems = append(problems, Problem{"access to connection tracking", err,
			Remedy{Module: "nf_conntrack_netlink", Option: "NF_CT_NETLINK"}})
	case err != nil:
		return problems, fmt.Errorf("ask the kernel for its connections: %w", err)
	}
	return problems, nil
}

// messages returns those of all features, in order.
func messages(families []model.Family) []netlink.Message {
	var out []netlink.Message
	for _, family := range families {
		for _, f := range (table{family}).features() {
			out = append(out, f.messages...)
		}
	}
	return out
}

// missing pairs features with the answers to their messages. Without the first
// feature of a family the answers of the others mean nothing.
func missing(families []model.Family, answers []error) []Problem {
	var out []Problem
	for _, family := range families {
		t := table{family}
		founded := true
		for i, f := range t.features() {
			refused := cmp.Or(answers[:len(f.messages)]...)
			answers = answers[len(f.messages):]
			if refused != nil && founded {
				out = append(out, Problem{fmt.Sprintf("%s (%s)", f.name, t.byFamily("ip", "ip6")), refused, f.remedy})
				founded = i > 0
			}
		}
	}
	return out
}
