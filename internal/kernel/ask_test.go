package kernel

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/kernel/codec"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

// asked reads the tables by asking for everything that is expected, as far as this
// kernel allows it. A listing must show the same.
func (s *sandbox) asked(t testing.TB, expected *nft.Ruleset) *nft.Ruleset {
	t.Helper()
	got, _, err := reading{expected, 1}.run(s.Conn)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(workload.Sorted(s.read(t)), workload.Sorted(got)); diff != "" {
		t.Fatalf("asking shows something else than a listing (-listed +asked):\n%s", diff)
	}
	return got
}

// counts reports whether the kernel counts the elements of sets (since kernel 6.16).
// Without that everything is listed.
func (s *sandbox) counts(t testing.TB) bool {
	t.Helper()
	_, count, err := s.Set(nft.EndpointsMap, model.IPv4)
	if err != nil {
		t.Fatal(err)
	}
	return count != codec.UnknownCount
}

// isShared reports whether a set that was read is part of what was expected: all of it
// was asked for, and nothing differs.
func isShared(got, expected *nft.Ruleset, set string) bool {
	a, b := got.Tables[0].Set(set).Elements, expected.Tables[0].Set(set).Elements
	return len(a) == len(b) && &a[0] == &b[0]
}

// TestAsk: whatever differs from what is expected is read as it is (13.11).
func TestAsk(t *testing.T) {
	desired := workload.Scenario(40, 3, 0)
	services := desired.Tables[0].Set(nft.ServicesMap)
	const endpoint = "10.96.0.7 . tcp . 80 . 0:2"
	changed := func(change func(e *nft.Element)) []string {
		e := services.Elements[7]
		change(&e)
		return []string{
			"delete element ip nftproxy services { " + services.KeyText(e.Key) + " }",
			"add element ip nftproxy services { " + services.ElementText(&e) + " }",
		}
	}
	for name, c := range map[string]struct {
		differs  string // the set
		commands []string
	}{
		"nothing": {},
		"endpoint": {nft.EndpointsMap, []string{
			"delete element ip nftproxy endpoints { " + endpoint + " }",
			"add element ip nftproxy endpoints { " + endpoint + " : 10.1.2.3 . 4 }"}},
		"class":      {nft.ServicesMap, changed(func(e *nft.Element) { e.Value.Class++ })},
		"comment":    {nft.ServicesMap, changed(func(e *nft.Element) { e.Comment = "default/other:http" })},
		"no comment": {nft.ServicesMap, changed(func(e *nft.Element) { e.Comment = "" })},
		"missing":    {nft.EndpointsMap, []string{"delete element ip nftproxy endpoints { " + endpoint + " }"}},
		"surplus":    {nft.EndpointsMap, []string{"add element ip nftproxy endpoints { 10.96.0.7 . tcp . 80 . 0:9 : 10.1.2.3 . 4 }"}},
		"one for another": {nft.ClusterIPsSet, []string{
			"delete element ip nftproxy cluster-ips { 10.96.0.7 }", "add element ip nftproxy cluster-ips { 10.97.0.7 }"}},
		"without a key": {nft.EndpointsMap, []string{"add element ip nftproxy endpoints { * : 10.1.2.3 . 4 }"}},
		"flushed":       {nft.EndpointsMap, []string{"flush map ip nftproxy endpoints"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSandbox(t)
			s.apply(t, desired)
			for _, command := range c.commands {
				s.nft(t, command)
			}
			got := s.asked(t, desired)
			if empty := s.plan(t, desired).Empty(); empty != (c.differs == "") {
				t.Errorf("nothing is to be done: %t", empty)
			}
			if !s.counts(t) {
				return
			}
			for _, set := range []string{nft.ServicesMap, nft.EndpointsMap, nft.ClusterIPsSet} {
				if shared := isShared(got, desired, set); shared != (set != c.differs) {
					t.Errorf("%s is as expected: %t", set, shared)
				}
			}
		})
	}
}

// TestAskInParts: elements are found at the ends of questions and of the parts that
// connections share.
func TestAskInParts(t *testing.T) {
	netlab.SkipInUserNamespace(t, "a netlink message of megabytes")
	s, desired := newSandbox(t), workload.Scenario(3000, 3, 0)
	s.apply(t, desired)
	endpoints := desired.Tables[0].Set(nft.EndpointsMap)
	if n := len(endpoints.Elements); n <= 2*askPart {
		t.Fatalf("%d elements are one part", n)
	}
	if got := s.asked(t, desired); s.counts(t) && !isShared(got, desired, nft.EndpointsMap) {
		t.Error("not all elements were asked for")
	}
	var script strings.Builder
	for i, n := range []int{0, 1, askAtOnce - 1, askAtOnce, askAtOnce + 1, 2000, askPart - 1, askPart, askPart + askAtOnce, len(endpoints.Elements) - 1} {
		key := endpoints.KeyText(endpoints.Elements[n].Key)
		fmt.Fprintf(&script, "delete element ip nftproxy endpoints { %s }\n", key)
		if i%3 == 0 {
			fmt.Fprintf(&script, "add element ip nftproxy endpoints { %s : 10.1.2.3 . 4 }\n", key)
		}
	}
	s.nft(t, script.String())
	got := s.asked(t, desired).Tables[0].Set(nft.EndpointsMap)
	if n := len(endpoints.Elements) - len(got.Elements); n != 6 {
		t.Errorf("%d elements are missing, want 6", n)
	}
}

// TestAskWorlds reads random rules as they are, expecting others.
func TestAskWorlds(t *testing.T) {
	s, w := newSandbox(t), workload.NewWorld(11)
	for range 30 {
		before := w.Step()
		s.apply(t, before)
		s.asked(t, before)
		s.asked(t, w.Step())
	}
}

// TestAskAboutSurplus: after Services were deleted or changed, their elements are found
// without a listing. Those of a frontend that is as expected are not.
func TestAskAboutSurplus(t *testing.T) {
	for name, c := range map[string]struct {
		held, expected *nft.Ruleset
		stray          string // an element that is added
		listed         bool
	}{
		"as expected":        {held: workload.Scenario(50, 3, 0), expected: workload.Scenario(50, 3, 0)},
		"added":              {held: workload.Scenario(50, 3, 0), expected: workload.Scenario(60, 3, 0)},
		"deleted":            {held: workload.Scenario(60, 3, 0), expected: workload.Scenario(50, 3, 0)},
		"without endpoints":  {held: workload.Scenario(50, 3, 0), expected: workload.Scenario(50, 0, 0)},
		"scaled down by one": {held: workload.Scenario(50, 4, 0), expected: workload.Scenario(50, 3, 0)},
		"scaled down":        {held: workload.Scenario(50, 3+guesses, 0), expected: workload.Scenario(50, 3, 0)},
		"scaled down by far": {held: workload.Scenario(50, 40, 0), expected: workload.Scenario(50, 3, 0)},
		"scaled up":          {held: workload.Scenario(50, 3, 0), expected: workload.Scenario(50, 5, 0)},
		"stray element": {held: workload.Scenario(50, 3, 0), expected: workload.Scenario(50, 3, 0), listed: true,
			stray: "add element ip nftproxy endpoints { 10.96.0.7 . tcp . 80 . 0:9 : 10.1.2.3 . 4 }"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSandbox(t)
			s.apply(t, c.held)
			if c.stray != "" {
				s.nft(t, c.stray)
			}
			s.asked(t, c.expected)
			if !s.counts(t) {
				return
			}
			_, sets, err := s.dumpTable(model.IPv4)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range sets {
				e.wanted = c.expected.Tables[0].Set(e.set.Name)
				if e.set.Name == nft.ServicesMap {
					err = e.dumpAll(s.Conn)
				} else if e.isOfFrontends() {
					err = e.readByKey(s.Conn)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			for _, e := range sets {
				if !e.isOfFrontends() {
					continue
				}
				if err := e.askAbout(s.Conn, unexpectedFrontends(sets, model.IPv4)); err != nil {
					t.Fatal(err)
				}
				if complete := e.isComplete(s.Conn); complete == (c.listed && e.set.Name == nft.EndpointsMap) {
					t.Errorf("%d of %d elements of %s are found", len(e.set.Elements), e.count, e.set.Name)
				}
			}
		})
	}
}

// TestAskWhileChanged: what was read is read again if another program changes the
// rules in the meantime, and then shows the change.
func TestAskWhileChanged(t *testing.T) {
	s := newSandbox(t)
	states := [2]*nft.Ruleset{workload.Scenario(100, 4, 0), workload.Scenario(100, 4, 9)}
	s.apply(t, states[0])
	writer, change := s.another(t), s.plan(t, states[1])
	read := 0
	got, _, err := readConsistently(s.Conn, "ruleset", func() (*nft.Ruleset, error) {
		now, err := reading{states[0], 1}.readTables(s.Conn)
		if read++; read == 1 {
			_, commitErr := writer.Commit(Prepared{Plan: change}, AnyGeneration)
			err = errors.Join(err, commitErr)
		}
		return now, err
	}, func(*nft.Ruleset) bool { return false })
	if err != nil || read != 2 {
		t.Fatalf("read %d times, %v", read, err)
	}
	if diff := cmp.Diff(s.held(t), workload.Sorted(got)); diff != "" {
		t.Errorf("an earlier state was read (-want +got):\n%s", diff)
	}
}

// TestAskWithoutRoom: if the answers do not fit into the socket's buffer, the set is
// listed, and nothing is left on the socket.
func TestAskWithoutRoom(t *testing.T) {
	s, desired := newSandbox(t), workload.Scenario(200, 4, 0)
	s.apply(t, desired)
	if err := s.socket.resizeBuffer(unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, 1); err != nil {
		t.Fatal(err)
	}
	e := &elements{
		set: workload.Clone(desired).Tables[0].Set(nft.EndpointsMap), family: model.IPv4,
		count: 800, wanted: desired.Tables[0].Set(nft.EndpointsMap),
	}
	if err := e.readByKey(s.Conn); err == nil {
		t.Error("all elements were answered")
	}
	s.asked(t, desired)
}

// TestMalformedAnswers: an answer about something else than what was asked for is an
// error.
func TestMalformedAnswers(t *testing.T) {
	s := workload.Scenario(2, 2, 0).Tables[0].Set(nft.EndpointsMap)
	answerTo := func(elements ...nft.Element) []byte {
		l := codec.ElementList{Verb: unix.NFT_MSG_NEWSETELEM}
		for i := range elements {
			l.Append(s, model.IPv4, &elements[i])
		}
		return appendMessage(nil, messageType(unix.NFT_MSG_NEWSETELEM), 0, 1, l.Message().Data)
	}
	asking := func() *Inquiry {
		q := newInquiry(s, model.IPv4, s.Elements[1:2])
		q.encodeQuestion(q.wanted)
		return q
	}
	right := answerTo(s.Elements[1])
	if q := asking(); q.decodeAnswer(right) != nil || q.next != 1 || q.differs {
		t.Error("the right answer is refused")
	}
	for name, err := range map[string]error{
		"nothing":         asking().decodeAnswer(nil),
		"short":           asking().decodeAnswer(right[:18]),
		"cut":             asking().decodeAnswer(right[:len(right)-8]),
		"no element":      asking().decodeAnswer(right[:20]),
		"another element": asking().decodeAnswer(answerTo(s.Elements[0])),
		"another number":  asking().decodeAnswer(append(append(slices.Clone(right[:8]), 2, 0, 0, 0), right[12:]...)),
		"two elements":    asking().decodeAnswer(answerTo(s.Elements[1], s.Elements[1])),
	} {
		if err == nil {
			t.Errorf("%s is taken for an answer", name)
		}
	}
}

// TestParallel: everything is done once, and an error ends the rest, with and without
// other connections.
func TestParallel(t *testing.T) {
	s := newSandbox(t)
	for name, c := range map[string]*Conn{"several connections": s.Conn, "one": {namespace: nil}} {
		t.Run(name, func(t *testing.T) {
			var done [100]atomic.Int32
			if err := c.runParallel(len(done), func(_ *Conn, i int) error { done[i].Add(1); return nil }); err != nil {
				t.Fatal(err)
			}
			for i := range done {
				if n := done[i].Load(); n != 1 {
					t.Errorf("number %d was done %d times", i, n)
				}
			}
			err := c.runParallel(len(done), func(_ *Conn, i int) error {
				if done[i].Add(1); i == 10 {
					return unix.ENOMEM
				}
				return nil
			})
			if OutcomeOf(err) != Short {
				t.Errorf("error %v", err)
			}
			if err := c.runParallel(0, func(*Conn, int) error { return unix.ENOMEM }); err != nil {
				t.Errorf("nothing was to be done: %v", err)
			}
			defer func() {
				if p := recover(); p != "broken" {
					t.Errorf("the caller got %v", p)
				}
			}()
			other := make(chan struct{})
			_ = c.runParallel(2, func(on *Conn, _ int) error {
				if on == c && c == s.Conn {
					<-other // connections get the other number
					return nil
				}
				close(other)
				panic("broken")
			})
		})
	}
}
