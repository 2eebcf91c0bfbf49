package test

import (
	"fmt"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/model"
)

// 3.1: a resolver asks for A and AAAA from one socket at the same time. Both packets are the
// first of their connection, on two processors, and round robin gives them different
// endpoints: the kernel keeps one entry, and answers both. Old kernels dropped one (kubernetes/kubernetes#56903).
func TestParallelQueries(t *testing.T) {
	c := newCluster(t, 3)
	for _, scheduler := range []string{"", "maglev-port"} {
		s := scheduled(scheduler, c.Pods[:2]...)
		c.apply(s)
		for _, f := range model.Families {
			for i := range 200 {
				if err := askTwice(c, s, f); err != nil {
					t.Fatalf("pair %d with scheduler %q over %s: %v", i, scheduler, f, err)
				}
			}
		}
	}
}

// askTwice sends two queries from one socket, each by a thread of its own, and waits for
// both answers.
func askTwice(c *cluster, s service, f model.Family) error {
	conn, err := c.Client.DialContext(c.t.Context(), "udp", fmt.Sprint(s.clusterIP(f)))
	if err != nil {
		return err
	}
	defer conn.Close()
	file, err := conn.(*net.UDPConn).File()
	if err != nil {
		return err
	}
	defer file.Close()
	if err := sendBoth(file); err != nil {
		return err
	}
	buffer := make([]byte, 1500)
	for got := range 2 {
		if err := conn.SetReadDeadline(time.Now().Add(answerTimeout)); err != nil {
			return err
		}
		if _, err := conn.Read(buffer); err != nil {
			return fmt.Errorf("after %d answers: %w", got, err)
		}
	}
	return nil
}

// answerTimeout is far beyond that of an answer on a busy machine.
const answerTimeout = 20 * time.Second

func sendBoth(file *os.File) error {
	var start, done sync.WaitGroup
	start.Add(2)
	errs := make([]error, 2)
	for i := range errs {
		done.Go(func() {
			start.Done()
			start.Wait()
			_, errs[i] = unix.Write(int(file.Fd()), []byte("query\n"))
		})
	}
	done.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
