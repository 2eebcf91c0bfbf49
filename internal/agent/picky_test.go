package agent

import (
	"cmp"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/apply"
	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/kernel/codec"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/render"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

// picky is the kernel. What a test names reaches it in a form that it refuses: with a name
// or a comment that is too long, or with a jump to nowhere.
type picky struct {
	*kernel.Conn
	spoils  func(*plan.Change) bool // nil: nothing
	fails   error                   // of each commit; nil: none
	trials  int
	refused int // commits
}

func (k *picky) Commit(p kernel.Prepared, generation uint32) (codec.Size, error) {
	if k.fails != nil {
		return codec.Size{}, k.fails
	}
	size, err := k.Conn.Commit(kernel.Prepared{Plan: k.spoil(p.Plan)}, generation)
	if kernel.RefusesContent(err) {
		k.refused++
	}
	return size, err
}

func (k *picky) Check(p *plan.Plan) error {
	k.trials++
	return k.Conn.Check(k.spoil(p))
}

func (k *picky) spoil(p *plan.Plan) *plan.Plan {
	if k.spoils == nil {
		return p
	}
	out := *p
	out.Changes = slices.Clone(p.Changes)
	for i := range out.Changes {
		c := &out.Changes[i]
		if k.spoils(c) {
			spoil(c)
		}
	}
	return &out
}

// part is something that a change adds to the rules.
type part struct {
	family model.Family
	kind   string // of object: element, set, map, chain or rule
	name   string // of the set or chain
	key    nft.Key
	rule   string
	hook   bool // the chain is at a hook
}

func (p part) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s of %s %s", nft.FamilyKeyword(p.family), p.kind, p.name, p.rule))
}

// partsOf calls yield with what a change adds, rule by rule.
func partsOf(c *plan.Change, yield func(part) bool) {
	p := part{family: c.Family, kind: c.Kind()}
	switch {
	case c.New != nil:
		p.name, p.key = c.Set.Name, c.New.Key
	case c.Verb == plan.Delete || p.kind == "table":
		return
	case c.Set != nil:
		p.name = c.Set.Name
	default:
		p.name, p.hook = c.Chain.Name, c.Chain.Hook != nft.NoHook
	}
	if c.Chain == nil || len(c.Chain.Rules) == 0 {
		yield(p)
		return
	}
	for _, r := range c.Chain.Rules {
		if p.kind, p.rule = "rule", r.Text(c.Family); !yield(p) {
			return
		}
	}
}

// adds reports whether a change adds a part.
func (p part) adds(c *plan.Change) (found bool) {
	if c.Family != p.family || (c.New != nil) != (p.kind == "element") || c.New != nil && c.New.Key != p.key {
		return false
	}
	partsOf(c, func(o part) bool { found = o == p; return !found })
	return found
}

// variation is what names of sets and chains of one kind differ in.
var variation = regexp.MustCompile(`(node|local)-|-[0-9].*$`)

// ofName returns a part that stands for all in sets or chains of the same kind. One for ranges
// of ports is another kind. Each family has about half of the kinds.
func (p part) ofName() part {
	out := part{kind: p.kind, name: variation.ReplaceAllString(p.name, "")}
	out.family = model.Families[len(out.name)%2]
	return out
}

// ofClass returns a part that stands for all of the same kind in sets whose elements mean the
// same, or in chains that are like it at a hook, or not.
func (p part) ofClass() part {
	out := part{kind: p.kind, hook: p.hook, family: model.IPv6}
	if p.kind != "chain" && p.kind != "rule" {
		contents := nft.RowOf(p.name).Contents
		out.name, out.family = fmt.Sprint(contents), model.Families[contents%2]
	}
	return out
}

func (p part) compare(o part) int {
	return cmp.Or(strings.Compare(p.String(), o.String()), strings.Compare(fmt.Sprint(p.key), fmt.Sprint(o.key)))
}

const tooLong = "this-is-not-taken-"

func spoil(c *plan.Change) {
	switch {
	case c.New != nil:
		e := *c.New
		e.Comment = strings.Repeat(tooLong, 20)
		c.New = &e
	case c.Set != nil:
		s := *c.Set
		s.Name = strings.Repeat(tooLong, 20)
		c.Set = &s
	default:
		chain := *c.Chain
		if len(chain.Rules) == 0 {
			chain.Name = strings.Repeat(tooLong, 20)
		} else {
			chain.Rules = append(slices.Clone(chain.Rules), nft.Rule{nft.Verdict{Action: nft.Goto, Chain: "nowhere"}})
		}
		c.Chain = &chain
	}
}

// newPicky returns a workshop whose kernel is picky, on a node with all constant parts.
func newPicky(t *testing.T, ns *netlab.Namespace) (*workshop, *picky) {
	t.Helper()
	w := newWorkshop(t, ns)
	k := &picky{Conn: w.kernel}
	w.Applier = apply.New(k, w.Log)
	w.Node = workload.FullConfig()
	return w, k
}

// states are Services by their name.
type states map[model.ServiceName]model.ServiceState

func (s states) update() *model.Update {
	return &model.Update{Services: s, Nodes: workload.FullNodes(), ServiceCIDRs: workload.FullCIDRs()}
}

func (s states) with(more ...model.ServiceState) states {
	out := make(states)
	for name, state := range s {
		out[name] = state
	}
	for _, state := range more {
		out[state.Service.Name] = state
	}
	return out
}

// rules returns the rules for the Services.
func (s states) rules() *nft.Ruleset {
	r := model.NewRouter()
	r.Configure(workload.FullConfig(), workload.FullNodes(), workload.FullCIDRs())
	r.SetServices(s)
	return render.Render(r.Routing())
}

// try syncs with an update, which may be nil, and returns the sync.
func (w *workshop) try(t *testing.T, cause Cause, s states) *Sync {
	t.Helper()
	w.pending.update = nil
	if s != nil {
		w.pending.update = s.update()
	}
	if !w.sync(cause) {
		t.Fatalf("%s failed: %v\n%s", cause, w.syncs[len(w.syncs)-1].Err, w.log)
	}
	return w.syncs[len(w.syncs)-1]
}

func (w *workshop) held(t *testing.T) *nft.Ruleset {
	t.Helper()
	r, _, err := w.kernel.Read()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// left returns what is to do with the kernel's rules, except for lanes without users.
func left(current, wanted *nft.Ruleset) *plan.Plan {
	return plan.Diff(current, plan.Settle(current, wanted)).WithoutIdleLanes()
}

// elementsAbout returns the elements about the frontends of a Service of workload.Full, with
// their texts.
func elementsAbout(r *nft.Ruleset, s *model.Service, n uint16) map[string]string {
	addresses := slices.Concat(s.ClusterIPs, s.External.ExternalIPs, s.External.LoadBalancerIPs)
	out := make(map[string]string)
	for _, table := range r.Tables {
		for _, set := range table.Sets {
			if set.Dynamic || slices.Contains(nft.SharedSets, set.Name) || slices.Contains(nft.LaneMaps, set.Name) {
				continue
			}
			for i := range set.Elements {
				e := &set.Elements[i]
				if slices.ContainsFunc(addresses, func(a netip.Addr) bool { return a == e.Key.Address }) || e.Key.Port == 30000+n || e.Key.Port == 31000+n {
					out[fmt.Sprint(set.Name, e.Key)] = set.ElementText(e)
				}
			}
		}
	}
	return out
}

var nothing nft.Ruleset
