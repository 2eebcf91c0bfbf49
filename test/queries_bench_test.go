package test

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/model"
)

// BenchmarkQueries measures what a pair of DNS queries costs by each path: a pod opens a socket, asks for A and for
// AAAA, gets both answers, and closes it. One thread has both ends. The kernel handles the packets in the calls that
// send them, so that the processor time of the thread is all that a pair costs. Paths take turns, and each ratio is
// the median of those to the path without rules.
func BenchmarkQueries(b *testing.B) {
	for _, f := range model.Families {
		for _, r := range measureQueries(b, f, 60, 200) {
			b.Run(fmt.Sprint(f, " ", r.name), func(b *testing.B) {
				for b.Loop() { // it is measured
				}
				b.ReportMetric(float64(r.cost.Nanoseconds()), "ns/pair")
				b.ReportMetric(r.ratio, "ratio")
				b.ReportMetric(r.entries, "entries/pair")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// queryCost is what a pair of queries costs by a path.
type queryCost struct {
	name    string
	cost    time.Duration // of a pair
	ratio   float64
	entries float64 // of connection tracking that a pair leaves
}

func measureQueries(tb testing.TB, f model.Family, rounds, pairs int) (all []queryCost) {
	costs, ratios := make([][]time.Duration, len(queryPaths)), make([][]float64, len(queryPaths))
	var nodes []*queries
	var sockets [][]int
	for i, p := range queryPaths {
		q := newQueries(tb, p)
		nodes, sockets = append(nodes, q), append(sockets, nil)
		for _, h := range q.servers {
			sockets[i] = append(sockets[i], q.datagrams(h, q.at(h, f)))
		}
		q.pairs(f, sockets[i], pairs) // neighbours, routes
	}
	entries := make([]float64, len(nodes))
	for range rounds {
		for i, q := range nodes {
			q.forget()
			before := q.entries()
			cost := q.pairs(f, sockets[i], pairs) / time.Duration(pairs)
			entries[i] += float64(q.entries()-before) / float64(rounds*pairs)
			costs[i] = append(costs[i], cost)
			ratios[i] = append(ratios[i], float64(cost)/float64(costs[0][len(costs[0])-1]))
		}
	}
	for i, p := range queryPaths {
		slices.Sort(costs[i])
		slices.Sort(ratios[i])
		all = append(all, queryCost{p.name, costs[i][rounds/2], ratios[i][rounds/2], entries[i]})
	}
	return all
}

// pairs asks pairs of queries one after the other, and returns the processor time.
func (q *queries) pairs(f model.Family, servers []int, pairs int) (all time.Duration) {
	q.tb.Helper()
	to := socketAddress(q.to(f))
	q.must(q.client.Do(func() error {
		runtime.LockOSThread()
		start, err := threadTime()
		for range pairs {
			if err == nil {
				err = askBoth(domainOf(q.to(f).Addr()), to, servers)
			}
		}
		end, failed := threadTime()
		all = end - start
		if err != nil {
			return err
		}
		return failed
	}))
	return all
}

func askBoth(domain int, to unix.Sockaddr, servers []int) error {
	client, err := unix.Socket(domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer unix.Close(client)
	if err := unix.Connect(client, to); err != nil {
		return err
	}
	for _, query := range []string{"name A\n", "name AAAA\n"} {
		if _, err := unix.Write(client, []byte(query)); err != nil {
			return err
		}
	}
	buffer := make([]byte, 512)
	for range 2 {
		server, n, from, err := receive(servers, buffer)
		if err != nil {
			return fmt.Errorf("receive a query: %w", err)
		}
		if err := unix.Sendto(server, buffer[:n], 0, from); err != nil {
			return err
		}
	}
	for range 2 {
		if _, _, _, err := receive([]int{client}, buffer); err != nil {
			return fmt.Errorf("receive an answer: %w", err)
		}
	}
	return nil
}

// receive reads a datagram from one of some sockets.
func receive(sockets []int, buffer []byte) (from, n int, peer unix.Sockaddr, err error) {
	for range 2 {
		var fds []unix.PollFd
		for _, s := range sockets {
			if n, peer, err = unix.Recvfrom(s, buffer, 0); err == nil {
				return s, n, peer, nil
			}
			fds = append(fds, unix.PollFd{Fd: int32(s), Events: unix.POLLIN})
		}
		// The kernel has put it off to a thread of its own.
		_, _ = unix.Poll(fds, int(answerTimeout/time.Millisecond))
	}
	return 0, 0, nil, err
}

// threadTime returns the processor time of the calling thread.
func threadTime() (time.Duration, error) {
	var t unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t)
	return time.Duration(t.Nano()), err
}
