package test

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/model"
)

// pairsOfQueries is how many pairs a test sends by each path and family.
const pairsOfQueries = 200

// 3.1: a resolver asks for A and AAAA from one socket at the same time. Both packets are the
// first of their connection, on two processors, and round robin gives them different
// endpoints: the kernel keeps one entry, and answers both. Old kernels dropped one (kubernetes/kubernetes#56903).
// So no path loses answers, and those whose packets are not tracked leave no entry.
func TestParallelQueries(t *testing.T) {
	t.Parallel()
	for _, path := range queryPaths {
		t.Run(path.name, func(t *testing.T) {
			q := newQueries(t, path)
			q.serve()
			for _, f := range model.Families {
				before := q.entries()
				lost, queries := q.load(f, pairsOfQueries)
				entries := q.entries() - before
				fmt.Fprintf(t.Output(), "%s: %d pairs, %d lost both answers, %d one, %d entries of connection tracking left\n", f, queries, lost[0], lost[1], entries)
				if q.untracked() && entries > queries/10 { // other packets of the node
					t.Errorf("%s: %d entries of connection tracking after %d pairs, want none", f, entries, queries)
				}
				if lost[0]+lost[1] > 0 {
					t.Errorf("%s: of %d pairs, %d lost both answers and %d one", f, queries, lost[0], lost[1])
				}
			}
		})
	}
}

// load has resolvers send pairs of queries at the same time, and counts pairs by how many answers came.
func (q *queries) load(f model.Family, pairs int) (got map[int]int, sent int) {
	q.tb.Helper()
	const resolvers = 4
	got = make(map[int]int)
	var mu sync.Mutex
	var all sync.WaitGroup
	for r := range resolvers {
		all.Go(func() {
			for i := range pairs / resolvers {
				name := fmt.Sprintf("%d-%d", r, i/2) // every other name is known to a cache
				n, err := q.askTwice(f, name)
				if err != nil {
					q.tb.Errorf("pair %s: %v", name, err)
					return
				}
				mu.Lock()
				got[n]++
				sent++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return got, sent
}

// askTwice sends two queries from one socket, each by a thread of its own, and waits for
// both answers. It returns how many came.
func (q *queries) askTwice(f model.Family, name string) (answers int, err error) {
	conn, err := q.client.DialContext(q.tb.Context(), "udp", q.to(f).String())
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if err := sendBoth(conn.(*net.UDPConn), name); err != nil {
		return 0, err
	}
	buffer := make([]byte, 1500)
	for ; answers < 2; answers++ {
		if err := conn.SetReadDeadline(time.Now().Add(answerTimeout)); err != nil {
			return answers, err
		}
		if _, err := conn.Read(buffer); err != nil {
			return answers, nil // it is lost
		}
	}
	return answers, nil
}

// answerTimeout is far beyond that of an answer on a busy machine.
const answerTimeout = 20 * time.Second

// sendBoth writes past the lock of the connection, which has one writer at a time.
func sendBoth(conn *net.UDPConn, name string) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	errs := make([]error, 2)
	err = raw.Control(func(fd uintptr) {
		var start, done sync.WaitGroup
		start.Add(2)
		for i, kind := range []string{"A", "AAAA"} {
			done.Go(func() {
				start.Done()
				start.Wait()
				_, errs[i] = unix.Write(int(fd), []byte(name+" "+kind+"\n"))
			})
		}
		done.Wait()
	})
	return errors.Join(append(errs, err)...)
}
