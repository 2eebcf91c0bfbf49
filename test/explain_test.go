package test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nftproxy/nftproxy/internal/explain"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/render"
	"github.com/nftproxy/nftproxy/internal/source/files"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// otherEchoPort is a second port that endpoints answer on.
const otherEchoPort = 8081

// Sizes of the comparison.
const (
	randomServices      = 200
	questionsPerService = 4
	binarySample        = 10 // questions that the program itself answers
	// How often a client connects until it has met every endpoint. No share is
	// smaller than one in 50.
	dialsAtLeast, dialsAtMost = 3, 2000
)

// question is a first packet and its sender.
type question struct {
	service *randomService
	from    *netlab.Host
	device  string // of the node, that it comes in from
	network string
	to      netip.AddrPort
	answer  prediction // by the file
}

func (q question) String() string {
	return fmt.Sprintf("%s %s from %s (%s)", q.network, q.to, q.from.Name, q.source())
}

func (q question) source() netip.Addr { return q.from.Address(model.FamilyOf(q.to.Addr())) }

// prediction is the output of explain, in the form for programs.
type prediction struct {
	Verdict  string
	Outcomes []predictedOutcome
}

type predictedOutcome struct {
	Endpoint        netip.AddrPort
	Masquerade      string // rule
	AffinitySeconds float64
	Bound           bool // by affinity
}

// oracle answers questions for one snapshot.
type oracle struct {
	router *model.Router
	rules  *nft.Ruleset
	local  []netip.Addr
}

func newOracle(t *testing.T, file string, config model.Config) *oracle {
	t.Helper()
	input, err := (&files.Reader{Paths: []string{file}}).Load()
	if err != nil {
		t.Fatal(err)
	}
	router := input.Snapshot.Route(config)
	return &oracle{router, render.Render(router.Routing()), explain.LocalAddresses(input.Snapshot, config)}
}

// look does the same as explain -f.
func (o *oracle) look(q question) (*explain.Result, error) {
	p, err := explain.Parse(q.network, q.target())
	if err != nil {
		return nil, err
	}
	if q.device == "" {
		p = p.SentBy(o.local)
	} else {
		p.Source, p.Interface = q.source(), q.device
	}
	r := explain.Explain(o.rules.Table(model.FamilyOf(p.Destination)), p, o.local)
	r.AddObjects(o.router)
	return r, nil
}

// json returns the answer as the program prints it.
func (o *oracle) json(t *testing.T, q question) string {
	t.Helper()
	r, err := o.look(q)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := explain.JSON(&out, r); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func (o *oracle) prediction(t *testing.T, q question) prediction {
	t.Helper()
	return parsePrediction(t, o.json(t, q))
}

// text returns the answer for people.
func (o *oracle) text(q question) string {
	r, err := o.look(q)
	if err != nil {
		return err.Error()
	}
	var out strings.Builder
	if err := explain.Print(&out, r, explain.Full, false); err != nil {
		return err.Error()
	}
	return out.String()
}

func parsePrediction(t *testing.T, text string) prediction {
	t.Helper()
	var p prediction
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		t.Fatalf("read the output of explain: %v\n%s", err, text)
	}
	return p
}

// comparison is one run of the test.
type comparison struct {
	*cluster
	dice
	oracle   *oracle
	seed     uint64
	outside  []*netlab.Host // addresses of the client
	services []*randomService
}

// newComparison builds a cluster, gives it random services, and applies them.
func newComparison(t *testing.T, seed uint64) *comparison {
	t.Helper()
	c := &comparison{cluster: newWideCluster(t, 4, 3), dice: newDice(seed), seed: seed}
	c.echo(c.Node)
	for _, h := range c.endpointHosts() {
		e, err := h.Echo(otherEchoPort)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.Close() })
	}
	for range 6 {
		c.outside = append(c.outside, c.newOutsider())
	}
	flags := c.programFlags()
	c.flags = flags.args
	c.services = c.world().services(randomServices)
	input := renderInput(t, c.Node, nil)
	for _, s := range c.services {
		input += s.yaml(t)
	}
	if err := os.WriteFile(c.file, []byte(input), 0o644); err != nil {
		t.Fatal(err)
	}
	c.mustRun(0, c.command("apply"))
	c.oracle = newOracle(t, c.file, flags.config)
	return c
}

// endpointHosts returns the hosts that can be endpoints: pods here and
// elsewhere, and the node.
func (c *comparison) endpointHosts() []*netlab.Host {
	return append(slices.Concat(c.Pods, c.Remote), c.Node)
}

// newOutsider gives the client another address.
func (c *comparison) newOutsider() *netlab.Host {
	c.t.Helper()
	v4 := netip.AddrFrom4([4]byte{198, 18, byte(c.IntN(256)), byte(1 + c.IntN(254))})
	v6 := netip.MustParseAddr(fmt.Sprintf("2001:db8:18:%x::%x", c.IntN(1<<16), 1+c.IntN(1<<16-1)))
	if slices.ContainsFunc(c.outside, func(h *netlab.Host) bool { return h.IPv4 == v4 || h.IPv6 == v6 }) {
		return c.newOutsider()
	}
	h, err := c.Client.Alias(v4, v6)
	if err != nil {
		c.t.Fatal(err)
	}
	return h
}

// world returns the hosts and addresses for the services. Several share an
// address, which may also be that of an endpoint.
func (c *comparison) world() *randomWorld {
	w := &randomWorld{dice: c.dice, hosts: c.endpointHosts()}
	for _, h := range append(c.endpointHosts(), c.outside...) {
		w.names = append(w.names, h.IPv4, h.IPv6)
	}
	for i := range 60 {
		w.vips = append(w.vips, netip.AddrFrom4([4]byte{203, 0, 113, byte(1 + i)}),
			netip.MustParseAddr(fmt.Sprintf("2001:db8:2::%x", 1+i)))
	}
	for _, h := range c.endpointHosts() {
		w.vips = append(w.vips, h.IPv4, h.IPv6)
	}
	return w
}

// host returns the host with an address, or nil.
func (c *comparison) host(a netip.Addr) *netlab.Host {
	all := c.endpointHosts()
	i := slices.IndexFunc(all, func(h *netlab.Host) bool { return h.Address(model.FamilyOf(a)) == a })
	if i < 0 {
		return nil
	}
	return all[i]
}

// check connects, and compares the result with the prediction.
func (c *comparison) check(q question, p prediction) error {
	if q.isPing() {
		return c.checkPing(q, p)
	}
	switch p.Verdict {
	case "reject":
		return wantRefused(q.from, q.network, q.to)
	case "drop":
		return wantSilence(q.from, q.network, q.to)
	case "forward":
		return c.checkForward(q, p)
	case "not ours":
		return c.checkNotOurs(q)
	}
	return fmt.Errorf("the verdict is %q", p.Verdict)
}

// checkForward wants answers from all endpoints and from no other host; with
// affinity, from one of them.
func (c *comparison) checkForward(q question, p prediction) error {
	missing := slices.Clone(p.Outcomes)
	for i := 0; i < dialsAtLeast || len(missing) > 0; i++ {
		if i == dialsAtMost {
			return fmt.Errorf("%s never answers", missing[0].Endpoint)
		}
		answer, err := q.from.Ask(q.network, q.to, 0)
		if err != nil {
			return err
		}
		isOther := func(o predictedOutcome) bool {
			return c.host(o.Endpoint.Addr()).Name != answer.Name || o.Endpoint.Port() != answer.Port
		}
		by := slices.IndexFunc(p.Outcomes, func(o predictedOutcome) bool { return !isOther(o) })
		if by < 0 {
			return fmt.Errorf("%s answers at port %d", answer.Name, answer.Port)
		}
		o := p.Outcomes[by]
		if err := c.checkSourceOf(q, c.host(o.Endpoint.Addr()), answer.Client, o.Masquerade != ""); err != nil {
			return err
		}
		missing = slices.DeleteFunc(missing, func(o predictedOutcome) bool { return !isOther(o) })
		if o.AffinitySeconds > 0 {
			missing, p.Outcomes = nil, p.Outcomes[by:by+1]
		}
	}
	return nil
}

// checkSourceOf compares the address that an endpoint sees.
func (c *comparison) checkSourceOf(q question, endpoint *netlab.Host, got netip.Addr, masqueraded bool) error {
	want := q.source()
	switch {
	case masqueraded && endpoint == c.Node: // over loopback, any of its addresses
		if !c.IsNode(got) {
			return fmt.Errorf("%s sees %s, want the node", endpoint.Name, got)
		}
		return nil
	case masqueraded:
		want = c.Gateway(endpoint, model.FamilyOf(want))
	}
	if got != want {
		return fmt.Errorf("%s sees %s, want %s", endpoint.Name, got, want)
	}
	return nil
}

// checkNotOurs wants what happens without any rules: an answer from the host
// that was dialled, or a refusal if nothing listens on that port.
func (c *comparison) checkNotOurs(q question) error {
	h := c.host(q.to.Addr())
	switch {
	case h == nil:
		return errors.New("no host has the address")
	case q.to.Port() != echoPort && q.to.Port() != otherEchoPort:
		return wantRefused(q.from, q.network, q.to)
	}
	answer, err := q.from.Ask(q.network, q.to, 0)
	if err != nil {
		return err
	}
	if answer.Name != h.Name {
		return fmt.Errorf("%s answers", answer.Name)
	}
	return c.checkSourceOf(q, h, answer.Client, false)
}

// checkAtOnce checks questions in parallel, those first that wait longest, and
// reports what is wrong.
func (c *comparison) checkAtOnce(all []question, answer func(question) prediction) {
	c.t.Helper()
	// "drop" is the first of the verdicts.
	slices.SortStableFunc(all, func(a, b question) int { return cmp.Compare(a.answer.Verdict, b.answer.Verdict) })
	next := make(chan question)
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for q := range next {
				p := answer(q)
				if err := c.check(q, p); err != nil {
					c.report(q, fmt.Errorf("%w; predicted was %+v", err, p))
				}
			}
		})
	}
	for _, q := range all {
		next <- q
	}
	close(next)
	wg.Wait()
}

// report fails the test with all details of a wrong answer.
func (c *comparison) report(q question, err error) {
	c.t.Helper()
	c.t.Errorf("%s=%d: %s: %v\nflags %s\n%s\n%s", seedVariable, c.seed, q, err, c.flags, q.service.yaml(c.t), c.oracle.text(q))
}

// explainCommand is the program with a question, and other arguments.
func (q question) explainCommand(args ...string) *exec.Cmd {
	args = append([]string{"explain", "-o", "json", q.network, q.target()}, args...)
	if q.device != "" {
		args = append(args, "--from", q.source().String(), "--interface", q.device)
	}
	return exec.Command(binary, args...)
}

// checkBinary asks the program some questions: by the file as the oracle does,
// and by the kernel, where clients are bound to endpoints by now (5.1).
func (c *comparison) checkBinary(all []question) {
	c.t.Helper()
	var sample []question
	byKernel := make(map[string]prediction)
	for _, i := range c.Perm(len(all))[:binarySample] {
		q := all[i]
		args := append([]string{"-f", c.file, "--hostname-override", nodeName}, c.flags...)
		got := c.mustRun(0, q.explainCommand(args...))
		if want := c.oracle.json(c.t, q); got != want {
			c.report(q, fmt.Errorf("the program says\n%s\nand not\n%s", got, want))
		}
		p := parsePrediction(c.t, c.mustRun(0, q.explainCommand()))
		if o := q.answer.Outcomes[0]; o.AffinitySeconds > 0 && !p.Outcomes[0].Bound {
			c.report(q, errors.New("the kernel's rules bind the client to no endpoint"))
		}
		sample = append(sample, q)
		byKernel[q.String()] = p
	}
	c.checkAtOnce(sample, func(q question) prediction { return byKernel[q.String()] })
}

// What explain says of a packet is what happens to it, for random services and
// clients: the possible endpoints, the address that they see, refusal and
// silence (4.6).
func TestExplainPredicts(t *testing.T) {
	c := newComparison(t, randomSeed(t))
	fmt.Fprintf(t.Output(), "%s=%d, flags %s\n", seedVariable, c.seed, c.flags)
	all := c.questions()
	met := make(map[string]int)
	for _, q := range all {
		met[q.answer.Verdict]++
	}
	fmt.Fprintf(t.Output(), "%d questions: %v\n", len(all), met)
	for _, verdict := range []string{"forward", "reject", "drop"} {
		if met[verdict] < 10 {
			t.Errorf("%s=%d: %q was predicted only %d times", seedVariable, c.seed, verdict, met[verdict])
		}
	}
	c.checkAtOnce(all, func(q question) prediction { return q.answer })
	c.checkBinary(all)
}
