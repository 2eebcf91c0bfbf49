package kernel

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

// TestCheck: the kernel takes rules, or refuses them, whatever our tables hold and
// whichever process owns them. A trial changes nothing: not even the generation, which watchers would see.
func TestCheck(t *testing.T) {
	for _, owns := range []bool{false, true} {
		t.Run(fmt.Sprintf("owner %t", owns), func(t *testing.T) {
			s := newSandbox(t)
			if owns {
				if _, err := s.Own(); err != nil {
					t.Fatal(err)
				}
			}
			s.apply(t, workload.Scaled(2))
			for _, c := range []struct {
				name  string
				spoil func(*nft.Element)
				errno error
			}{
				{"good", func(*nft.Element) {}, nil},
				{"comment too long", func(e *nft.Element) { e.Comment = strings.Repeat("x", 300) }, unix.ERANGE},
			} {
				desired := workload.Clone(workload.Scaled(300))
				all := desired.Tables[0].Set(nft.EndpointsMap).Elements
				for _, i := range []int{0, 1, len(all) / 2, len(all) - 1} {
					before := all[i]
					c.spoil(&all[i])
					s.check(t, c.name, desired, &all[i], c.errno)
					s.another(t).check(t, c.name+", asked by another process", desired, &all[i], c.errno)
					all[i] = before
				}
			}
		})
	}
}

// check tries a ruleset. The kernel must refuse an element with an error, unless that is
// nil.
func (s *sandbox) check(t *testing.T, name string, desired *nft.Ruleset, e *nft.Element, want error) {
	t.Helper()
	listing := s.listing(t)
	generation, err := s.Generation()
	if err != nil {
		t.Fatal(err)
	}
	p := plan.Diff(&nft.Ruleset{}, desired)
	for range 2 {
		err := s.Check(p)
		var refused *CommitError
		if !errors.Is(err, want) || want != nil && (!errors.As(err, &refused) || refused.Element == nil || refused.Element.Key != e.Key) {
			t.Errorf("%s: error %v, want %v about %s", name, err, want, e.Key.Frontend())
		}
		if RefusesContent(err) != (want != nil) {
			t.Errorf("%s: refused because of its content: %t", name, RefusesContent(err))
		}
	}
	if now := s.listing(t); now != listing {
		t.Errorf("%s: a trial has changed the rules:\n%s", name, now)
	}
	if after, err := s.Generation(); err != nil || after != generation {
		t.Errorf("%s: generation %d after %d: %v", name, after, generation, err)
	}
}

// TestRefusesContent: only errors that come again whatever else happens are about the
// content of a transaction, and none about bindings of clients, which expire.
func TestRefusesContent(t *testing.T) {
	services, bindings := &nft.Set{Name: nft.ServicesMap}, &nft.Set{Name: nft.AffinityMap, Dynamic: true}
	for _, c := range []struct {
		err  error
		set  *nft.Set
		want bool
	}{
		{nil, nil, false}, {io.ErrUnexpectedEOF, nil, false}, {ErrNoAnswer, nil, false}, {ErrChanged, nil, false},
		{unix.EINVAL, services, true}, {unix.EOPNOTSUPP, nil, true}, {unix.ENOENT, services, true}, {unix.ERANGE, services, true},
		{unix.E2BIG, services, true}, {unix.ENAMETOOLONG, nil, true}, {unix.EEXIST, services, true},
		{unix.EBUSY, services, false}, {unix.EINTR, services, false}, {unix.EAGAIN, services, false}, {unix.ENOBUFS, services, false},
		{unix.ENOMEM, services, false}, {unix.EMSGSIZE, services, false}, {unix.EPERM, services, false}, {unix.ERESTART, services, false},
		{&OwnedError{}, nil, false},
		{unix.ENOENT, bindings, false}, {unix.EINVAL, bindings, false},
	} {
		err := c.err
		if err != nil {
			err = fmt.Errorf("apply: %w", &CommitError{Object: "something", Set: c.set, Err: addRemedy(c.err)})
		}
		if got := RefusesContent(err); got != c.want {
			t.Errorf("%v about %v: %t", c.err, c.set, got)
		}
	}
}
