package test

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// row is a row of table 4-A: where a connection to a kind of destination goes
// under a policy, by its origin. "cluster" and "local" are the sets of
// endpoints it may reach, "masq" says that these see the node instead of the
// client. An empty local set drops it (table 4-B), unless there is no endpoint
// on any node: then everything is rejected.
type row struct {
	destination string // ClusterIP, or external for the others
	policy      string
	outside     string // A
	node        string // N
	pod         string // P
	remote      string // R
}

// verdicts is table 4-A.
type verdicts []row

// tableA holds where the addresses of all pods are known (4.9, 4.10, 7.4).
var tableA = verdicts{
	//                      A                N                P                R
	{"ClusterIP", "Cluster", "cluster, masq", "cluster, masq", "cluster", "cluster"},
	{"ClusterIP", "Local", "local, masq", "local, masq", "local", "local"},
	{"external", "Cluster", "cluster, masq", "cluster, masq", "cluster, masq", "cluster, masq"},
	{"external", "Local", "local", "cluster, masq", "cluster", "cluster"},
}

// with returns the table with other rows for some destinations and policies.
func (v verdicts) with(rows ...row) verdicts {
	out := slices.Clone(v)
	for _, r := range rows {
		out[v.index(r.destination, r.policy)] = r
	}
	return out
}

// situation is the location and state of a service's endpoints, and the
// resulting sets of endpoints (section 3).
type situation struct {
	name           string
	service        service // its endpoints
	cluster, local []*netlab.Host
}

func (c *cluster) situations() []situation {
	type hosts = []*netlab.Host
	here, too, there := c.Pods[0], c.Pods[1], c.Remote[0]
	return []situation{
		{"none", service{}, nil, nil},
		{"ready here and elsewhere", service{Pods: hosts{here, there}}, hosts{here, there}, hosts{here}},
		{"ready elsewhere", service{Pods: hosts{there}}, hosts{there}, nil},
		{"terminating here and elsewhere", service{Terminating: hosts{here, there}}, hosts{here, there}, hosts{here}},
		{"terminating elsewhere", service{Terminating: hosts{there}}, hosts{there}, nil},
		{"ready elsewhere, terminating here", service{Pods: hosts{there}, Terminating: hosts{here}}, hosts{there}, hosts{here}},
		{"ready here and elsewhere, terminating here", service{Pods: hosts{here, there}, Terminating: hosts{too}},
			hosts{here, there}, hosts{here}},
		{"not serving", service{Dead: hosts{here, there}}, nil, nil},
	}
}

// cell is one combination of everything that decides.
type cell struct {
	name     string
	row      row
	from     *netlab.Host
	network  string
	to       netip.AddrPort
	want     []*netlab.Host // endpoints; none: verdict
	source   netip.Addr     // that they see; not valid: the node
	rejected bool           // where there are none
	sticky   bool           // one of them answers this client
}

// check dials until every endpoint has answered that should, and a few times at
// least.
func (c *cluster) check(cell cell) error {
	switch {
	case cell.rejected:
		return wantRefused(cell.from, cell.network, cell.to)
	case len(cell.want) == 0:
		return wantSilence(cell.from, cell.network, cell.to)
	}
	missing := slices.Clone(cell.want)
	for i := 0; i < 4 || len(missing) > 0; i++ {
		if i == 100 {
			return fmt.Errorf("%s never answered", missing[0].Name)
		}
		answer, err := cell.from.Ask(cell.network, cell.to, 0)
		if err != nil {
			return err
		}
		isAnswer := func(h *netlab.Host) bool { return h.Name == answer.Name }
		by := slices.IndexFunc(cell.want, isAnswer)
		if by < 0 {
			return fmt.Errorf("%s answered", answer.Name)
		}
		if err := c.checkSource(cell, cell.want[by], answer.Client); err != nil {
			return err
		}
		missing = slices.DeleteFunc(missing, isAnswer)
		if cell.sticky {
			cell.want, missing = cell.want[by:by+1], nil
		}
	}
	return nil
}

func (c *cluster) checkSource(cell cell, endpoint *netlab.Host, got netip.Addr) error {
	want := cell.source
	if !want.IsValid() {
		family := model.FamilyOf(cell.to.Addr())
		want = c.Gateway(endpoint, family)
	}
	if got != want {
		return fmt.Errorf("%s sees %s, want %s", endpoint.Name, got, want)
	}
	return nil
}

// cells returns the combinations of one service in one situation.
func (c *cluster) cells(table verdicts, f model.Family, situation situation, s service) []cell {
	pod, remote := c.Pods[len(c.Pods)-1], c.Remote[len(c.Remote)-1]
	var all []cell
	for kind, frontend := range s.frontends(c.Node, f) {
		r := table.row(kind, s)
		for _, client := range []struct {
			host *netlab.Host
			want string
		}{{c.Client, r.outside}, {c.Node, r.node}, {pod, r.pod}, {remote, r.remote}} {
			for _, network := range []string{"tcp", "udp"} {
				name := fmt.Sprintf("%s: from %s to %s, %s %s, %s", situation.name, client.host.Name, kind, network, f, client.want)
				cell := cell{name: name, row: r, from: client.host, network: network, to: frontend, sticky: s.isSticky()}
				all = append(all, cell.expecting(client.want, situation, f))
			}
		}
	}
	return all
}

// isSticky reports whether a client has one endpoint.
func (s service) isSticky() bool {
	return s.Affinity > 0 || s.Annotations[schedulerAnnotation] == "source-hash"
}

// row returns the row for a kind of frontend of a service.
func (v verdicts) row(kind string, s service) row {
	destination, policy := "external", s.External
	if kind == "ClusterIP" {
		destination, policy = kind, s.Internal
	}
	return v[v.index(destination, policy)]
}

func (v verdicts) index(destination, policy string) int {
	return slices.IndexFunc(v, func(r row) bool { return r.destination == destination && r.policy == policy })
}

// expecting returns the cell with the expectation that a word of the table
// stands for.
func (c cell) expecting(want string, s situation, f model.Family) cell {
	set, masq, _ := strings.Cut(want, ", ")
	c.want = map[string][]*netlab.Host{"cluster": s.cluster, "local": s.local}[set]
	c.rejected = len(s.cluster) == 0
	if masq == "" {
		c.source = c.from.Address(f)
	}
	return c
}

// services returns a service for each situation and pair of policies, and the
// situations in the same order.
func services(all []situation) (out []service, of []situation) {
	for _, s := range all {
		for _, internal := range []string{"Cluster", "Local"} {
			for _, external := range []string{"Cluster", "Local"} {
				svc := s.service
				svc.N = len(out) + 1
				svc.Name = fmt.Sprintf("service-%d", svc.N)
				svc.Internal, svc.External = internal, external
				out, of = append(out, svc), append(of, s)
			}
		}
	}
	return out, of
}

// verify applies one service for each situation and pair of policies, and
// checks all cells at the same time. Each row of the table is a subtest.
func (c *cluster) verify(t *testing.T, table verdicts, situations []situation, families ...model.Family) {
	t.Helper()
	svcs, of := services(situations)
	c.apply(svcs...)
	var cells []cell
	for i, s := range svcs {
		for _, f := range families {
			cells = append(cells, c.cells(table, f, of[i], s)...)
		}
	}
	failures := c.checkAll(cells)
	for _, r := range table {
		t.Run(r.destination+" "+r.policy, func(t *testing.T) {
			for _, failure := range failures[r] {
				t.Error(failure)
			}
		})
	}
}

// checkAll returns what is wrong, by row, in the order of the cells.
func (c *cluster) checkAll(cells []cell) map[row][]error {
	errs := make([]error, len(cells))
	next := make(chan int)
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for i := range next {
				errs[i] = c.check(cells[i])
			}
		})
	}
	// Longest first: those that wait for silence.
	order := make([]int, len(cells))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(len(cells[a].want), len(cells[b].want)) })
	for _, i := range order {
		next <- i
	}
	close(next)
	wg.Wait()
	failures := make(map[row][]error)
	for i, err := range errs {
		if err != nil {
			failures[cells[i].row] = append(failures[cells[i].row], fmt.Errorf("%s: %w", cells[i].name, err))
		}
	}
	return failures
}

// Tables 4-A and 4-B: where connections go and which source they seem to have
// (4.6, 4.9, 4.10, 4.11, 4.15, 4.16, 4.18), for all results of the selection of
// endpoints (3.4, 3.5, 3.6, 3.7, 3.8).
func TestPolicies(t *testing.T) {
	c := newWideCluster(t, 3, 2)
	c.verify(t, tableA, c.situations(), model.Families[:]...)
}

// 3.19, 5.13: affinity and schedulers do not change the tables.
func TestPoliciesOfOtherLanes(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*service){
		"affinity":    func(s *service) { s.Affinity = long },
		"random":      func(s *service) { s.Annotations = map[string]string{schedulerAnnotation: "random"} },
		"source-hash": func(s *service) { s.Annotations = map[string]string{schedulerAnnotation: "source-hash"} },
		"random with affinity": func(s *service) {
			s.Affinity, s.Annotations = long, map[string]string{schedulerAnnotation: "random"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newWideCluster(t, 3, 2)
			situations := c.situations()
			for i := range situations {
				change(&situations[i].service)
			}
			c.verify(t, tableA, situations, model.Families[:]...)
		})
	}
}
