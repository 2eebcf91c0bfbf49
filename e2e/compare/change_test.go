package compare

import (
	"net/netip"
	"time"

	"github.com/nftproxy/nftproxy/bench/results"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
)

// change is one that a proxy has to follow.
type change struct {
	operation results.Operation
	service   int
	write     func() error
	// events and kind are the events that the API server sends for it.
	events <-chan apiEvent
	kind   watch.EventType
	// made reports whether a transaction makes the change, or a part of it.
	made func(testbed.Commit) bool
	// check must succeed from then on.
	check func() error
}

// times are those of one change, since the write to the API server began.
type times struct {
	kernel, watch time.Duration
	transactions  int
}

// follow makes a change and returns when it was there: with the last
// transaction that belongs to it.
func (c *comparison) follow(x change) times {
	t := c.C.T
	t.Helper()
	if n := c.kernel.Pending(t); n > 0 {
		t.Fatalf("%s: %d transactions before %s", c.name, n, x.operation)
	}
	begin := time.Now()
	if err := x.write(); err != nil {
		t.Fatalf("%s: %v", x.operation, err)
	}
	last, count := c.await(string(x.operation), x.made)
	for {
		k, ok := c.kernel.Next(t, sameChange)
		if !ok {
			break
		}
		if count++; x.made(k) {
			last = k
		}
	}
	if err := x.check(); err != nil {
		t.Fatalf("%s: %s: after the transaction: %v", c.name, x.operation, err)
	}
	told := eventOf(t, x.events, x.kind, testbed.LoadName(x.service))
	count += len(c.settle())
	return times{last.Seen.Sub(begin), told.seen.Sub(begin), count}
}

// measured follows changes of one kind until there are enough.
func (c *comparison) measured(each func() []change) {
	all := map[results.Operation][]times{}
	var order []results.Operation
	c.changes.repeat(func(int) {
		for _, x := range each() {
			if all[x.operation] == nil {
				order = append(order, x.operation)
			}
			all[x.operation] = append(all[x.operation], c.follow(x))
		}
	})
	for _, operation := range order {
		c.recordTimes(operation, all[operation])
	}
}

// replaceEndpoint replaces one endpoint of the service in the middle by
// another pod, and that by the first one again.
func (c *comparison) replaceEndpoint() {
	i := c.Probes[1]
	c.measured(func() []change {
		return []change{c.update(results.ReplaceEndpoint, i, c.pods(0, 1, 2, 4)), c.update(results.ReplaceEndpoint, i, c.pods(0, 1, 2, 3))}
	})
}

// scale gives the service in the middle one endpoint more, and takes it away
// again.
func (c *comparison) scale() {
	i := c.Probes[1]
	c.measured(func() []change {
		down := c.update(results.ScaleDown, i, c.pods(0, 1, 2, 3))
		down.made = func(testbed.Commit) bool { return true } // it need not name an address
		return []change{c.update(results.ScaleUp, i, c.pods(0, 1, 2, 3, 4)), down}
	})
}

// update makes pods the endpoints of a service, of which the last one is new.
func (c *comparison) update(operation results.Operation, i int, pods []*netlab.Host) change {
	return change{
		operation: operation,
		service:   i,
		write:     func() error { return c.UpdateSlice(i, addressesOf(pods)...) },
		events:    c.events.slices,
		kind:      watch.Modified,
		made:      func(k testbed.Commit) bool { return k.Added[pods[len(pods)-1].IPv4] },
		check:     func() error { return c.reaches(i, pods) },
	}
}

// replaceService adds a service, whose endpoints are known already, and deletes
// it again.
func (c *comparison) replaceService() {
	t := c.C.T
	t.Helper()
	i, pods := c.Services, c.pods(0, 1, 2, 3)
	if err := c.CreateSlice(i, addressesOf(pods)...); err != nil {
		t.Fatal(err)
	}
	c.settle()
	add := change{
		operation: results.AddService,
		service:   i,
		write:     func() error { return c.CreateService(i) },
		events:    c.events.services,
		kind:      watch.Added,
		made:      func(k testbed.Commit) bool { return k.Added[testbed.ClusterIP(i)] },
		check:     func() error { return c.reaches(i, pods) },
	}
	remove := change{
		operation: results.DeleteService,
		service:   i,
		write:     func() error { return c.DeleteService(i) },
		events:    c.events.services,
		kind:      watch.Deleted,
		made:      func(k testbed.Commit) bool { return k.Removed[testbed.ClusterIP(i)] },
		check:     func() error { return testbed.WantSilence(c.C.Client, "tcp", testbed.LoadTarget(i)) },
	}
	c.measured(func() []change { return []change{add, remove} })
	if err := c.DeleteSlice(i); err != nil {
		t.Fatal(err)
	}
	c.settle()
}

// pods returns some of the pods.
func (c *comparison) pods(numbers ...int) (pods []*netlab.Host) {
	for _, n := range numbers {
		pods = append(pods, c.C.Pods[n])
	}
	return pods
}

func addressesOf(pods []*netlab.Host) (addresses []netip.Addr) {
	for _, p := range pods {
		addresses = append(addresses, p.IPv4)
	}
	return addresses
}
