package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/conntest"
	"github.com/nftproxy/nftproxy/internal/fleet"
	"github.com/nftproxy/nftproxy/internal/fleet/peers"
	"github.com/nftproxy/nftproxy/internal/parallel"
	"github.com/nftproxy/nftproxy/internal/terminal"
)

type clusterTest struct {
	*fleetTestOptions
	c       *cobra.Command
	fleet   *fleet.Fleet
	intents *intents
	members members
	names   []string // of the nodes that are tested
	lab     *peers.Lab

	settings *api.Basis // of the first nftproxy that has answered, for nodes without one
	notes    []string
	image    string // that pods run
	untested []conntest.Reason
	results  []*conntest.Result
	done     int // nodes
}

// test tests all nodes, and removes everything.
func (t *clusterTest) test() (report *conntest.Report, err error) {
	ctx, cancel := context.WithTimeoutCause(t.c.Context(), t.Limit, errors.New("the test took too long"))
	defer cancel()
	start := time.Now()
	cli.ShowProgress(t.c, "creating the namespace")
	t.lab, err = peers.Open(ctx, t.fleet, t.Options)
	if t.lab != nil {
		defer func() {
			cli.ShowProgress(t.c, "removing everything")
			err = errors.Join(err, t.lab.Remove(ctx))
			if err == nil {
				t.addNotes(report)
			}
		}()
	}
	if err != nil {
		return nil, err
	}
	for _, batch := range batchesOf(t.names, t.batch) {
		if err := t.testBatch(ctx, batch); err != nil {
			return nil, err
		}
		t.done += len(batch)
	}
	if len(t.results) == 0 && len(t.untested) > 0 {
		return nil, fmt.Errorf("no node could be tested:\n%s", reasonsOf(t.untested))
	}
	of := "Services of all kinds"
	if t.service != "" {
		of = t.service
	}
	report = conntest.NewReport(of, t.results, time.Since(start).Seconds())
	report.Untested = t.untested
	return report, nil
}

// batchesOf divides nodes into batches of most at most. They are as equal as they can be, since a node that is
// alone in its batch has no other node that connects to it.
func batchesOf(nodes []string, most int) (out [][]string) {
	n := (len(nodes) + most - 1) / most
	for i := range n {
		out = append(out, nodes[i*len(nodes)/n:(i+1)*len(nodes)/n])
	}
	return out
}

// maxReasons limits the lines of an error.
const maxReasons = 10

func reasonsOf(all []conntest.Reason) string {
	var lines []string
	for _, u := range all[:min(len(all), maxReasons)] {
		lines = append(lines, "  "+u.Node+": "+u.Reason)
	}
	if more := len(all) - maxReasons; more > 0 {
		lines = append(lines, "  and "+terminal.Count(more, "node")+" more")
	}
	return strings.Join(lines, "\n")
}

// addNotes says what has happened beside the connections.
func (t *clusterTest) addNotes(r *conntest.Report) {
	r.Image, r.Notes = t.image, append(r.Notes, t.notes...)
	if len(t.lab.Removed) > 0 {
		r.Notes = append(r.Notes, "removed what an earlier run has left: "+strings.Join(t.lab.Removed, ", "))
	}
	for _, o := range t.lab.Others {
		r.Notes = append(r.Notes, fmt.Sprintf("another run may be in progress, in namespace %s, until %s at the latest", o.Namespace, o.Ends.Format(time.RFC3339)))
	}
	if t.lab.Remains != "" {
		r.Notes = append(r.Notes, "the API server is still deleting namespace "+t.lab.Remains)
	}
	if t.Services {
		r.Notes = append(r.Notes, "SCTP is not tried")
	}
}

func (t *clusterTest) testBatch(ctx context.Context, nodes []string) (err error) {
	all, untested, err := t.lab.Start(ctx, nodes, func(ready, n int) {
		cli.ShowProgress(t.c, "%d of %d nodes tested; %d of %d pods are ready", t.done, len(t.names), ready, n)
	})
	if err != nil {
		return err
	}
	t.untested = append(t.untested, untested...)
	if len(nodes) == 1 && t.Host && len(t.names) > 1 {
		t.note("node " + nodes[0] + " was alone in its batch: no other node has connected to it")
	}
	defer func() {
		if t.done+len(nodes) < len(t.names) && err == nil { // the last pods go with the namespace
			err = t.lab.Stop(ctx, all)
		}
	}()
	if len(all) == 0 {
		return nil
	}
	if t.image = all[0].ImageID; t.Services {
		if err := t.settle(ctx, all); err != nil {
			return err
		}
	}
	cli.ShowProgress(t.c, "%d of %d nodes tested; predicting", t.done, len(t.names))
	t.intents.forget()
	jobs, err := t.jobs(ctx, all)
	if err != nil {
		return err
	}
	return t.dial(ctx, jobs)
}

const (
	// settlePatience is how long a node may take to apply the endpoints of the test.
	settlePatience = 30 * time.Second
	// blindPause is how long nodes that do not say what they have applied get for it.
	blindPause = 5 * time.Second
)

// settle waits until the nodes know the endpoints of the Services.
func (t *clusterTest) settle(ctx context.Context, all []*peers.Peer) error {
	want := t.lab.ServiceEndpoints()
	cli.ShowProgress(t.c, "%d of %d nodes tested; waiting for the endpoints", t.done, len(t.names))
	if err := t.lab.AwaitEndpoints(ctx, want); err != nil {
		return err
	}
	var asked []fleet.Agent
	blind := false // a node has no agent
	for _, p := range all {
		switch agent := fleet.ReadyOn(t.members.agents, p.Node); {
		case agent == nil:
			blind = true
		case !slices.Contains(asked, *agent):
			asked = append(asked, *agent)
		}
	}
	limited, cancel := context.WithTimeout(ctx, settlePatience)
	defer cancel()
	for len(asked) > 0 {
		var reasons []string
		asked, reasons = t.lagging(limited, asked, want)
		if len(asked) > 0 && !parallel.Wait(limited, time.Second) {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			for i, a := range asked {
				t.note(fmt.Sprintf("node %s, within %s: %s", a.Node, settlePatience, reasons[i]))
			}
			return nil
		}
	}
	if blind && !parallel.Wait(ctx, blindPause) {
		return ctx.Err()
	}
	return nil
}

// lagging returns the agents that have not applied the endpoints of the Services, and why.
func (t *clusterTest) lagging(ctx context.Context, asked []fleet.Agent, want map[string][]netip.Addr) (still []fleet.Agent, reasons []string) {
	answers := fleet.Ask(ctx, t.fleet, asked, func(int) {}, func(ctx context.Context, client *api.Client) (*bool, error) {
		return applied(ctx, client, t.lab.Name, want)
	})
	for i := range answers {
		switch a := &answers[i]; {
		case a.Err != nil:
			still, reasons = append(still, a.Agent), append(reasons, a.Err.Error())
		case !*a.Document:
			still, reasons = append(still, a.Agent), append(reasons, "it has not applied the endpoints of the test")
		}
	}
	return still, reasons
}

type job struct {
	peer  *peers.Peer // nil: this machine
	cases []*conntest.Case
}

func (t *clusterTest) dial(ctx context.Context, jobs []job) error {
	learns := conntest.Answers
	if !t.Services {
		learns = conntest.Outcomes
	}
	all, tried := 0, 0
	for _, j := range jobs {
		all += len(j.cases)
	}
	var mu sync.Mutex
	var wait sync.WaitGroup
	for _, j := range jobs {
		wait.Go(func() {
			j.try(ctx, learns, t.wait, func(r *conntest.Result) {
				mu.Lock()
				defer mu.Unlock()
				tried++
				t.results = append(t.results, r)
				cli.ShowProgress(t.c, "%d of %d nodes tested; %d of %d cases are tried", t.done, len(t.names), tried, all)
			})
		})
	}
	wait.Wait()
	return ctx.Err()
}

// try tries the cases of a peer, and calls each with the results.
func (j *job) try(ctx context.Context, learns conntest.Knowledge, patience time.Duration, each func(*conntest.Result)) {
	limited, cancel := context.WithTimeoutCause(ctx, dialLimit, fmt.Errorf("it took longer than %s", dialLimit))
	defer cancel()
	var cases []*conntest.Case
	var list []conntest.Dial
	for _, c := range j.cases {
		if c.Skip != "" {
			each(c.Judge(nil, false))
			continue
		}
		cases, list = append(cases, c), append(list, c.Dial(learns, patience, 0))
	}
	missing := make(map[int]bool)
	for i := range list {
		missing[i] = true
	}
	take := func(got *conntest.Dialled) {
		delete(missing, got.Index)
		each(cases[got.Index].JudgeDialled(&list[got.Index], got))
	}
	var err error
	if j.peer == nil {
		conntest.OpenAll(limited, list, conntest.WithoutSCTP, take)
	} else {
		err = j.peer.Dial(limited, list, take)
	}
	for i := range missing {
		each(cases[i].JudgeDialled(&list[i], &conntest.Dialled{Index: i, Error: fmt.Sprint(errors.Join(err, context.Cause(limited)))}))
	}
}
