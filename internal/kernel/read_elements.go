package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/kernel/codec"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// elements are the elements of one set, which are to be read.
type elements struct {
	set    *nft.Set
	family model.Family
	count  int      // in the kernel, or unknownCount
	wanted *nft.Set // nil: none
}

// readElements reads the elements of sets: by key what may be as expected, and then lists the
// rest. A permanent error of a question is one of the listing as well.
func (r reading) readElements(c *Conn, sets []*elements) error {
	var list, surplus []*elements
	for _, e := range sets {
		asked := e.isWorthAsking(r.askFrom) && e.readByKey(c) == nil
		switch {
		case asked && e.isComplete(c):
		case asked && e.isOfFrontends() && len(e.set.Elements) < e.count:
			surplus = append(surplus, e)
		default:
			list = append(list, e)
		}
	}
	if err := dumpAll(c, list); err != nil {
		return err
	}
	list = list[:0]
	for _, e := range surplus {
		if err := e.askAbout(c, unexpectedFrontends(sets, e.family)); err != nil || !e.isComplete(c) {
			list = append(list, e)
		}
	}
	return dumpAll(c, list)
}

// dumpAll lists the largest sets first.
func dumpAll(c *Conn, sets []*elements) error {
	slices.SortStableFunc(sets, func(a, b *elements) int { return cmp.Compare(b.count, a.count) })
	return c.runParallel(len(sets), func(c *Conn, i int) error { return sets[i].dumpAll(c) })
}

// maxReaders is how many connections read at the same time, at most.
const maxReaders = 4

// runParallel calls do for the numbers below n, each on one of several connections. The
// kernel answers questions on the processor of the caller, without a lock. A panic
// reaches the caller, as it would without other goroutines.
func (c *Conn) runParallel(n int, do func(c *Conn, i int) error) error {
	var next atomic.Int64
	work := func(c *Conn) error {
		for {
			i := int(next.Add(1)) - 1
			if i >= n {
				return nil
			}
			if err := do(c, i); err != nil {
				next.Store(int64(n))
				return err
			}
		}
	}
	errs := make([]error, max(min(n, runtime.GOMAXPROCS(0), maxReaders), 1))
	var others sync.WaitGroup
	var failure atomic.Pointer[any]
	for i := range errs[1:] {
		others.Go(func() {
			defer func() {
				if p := recover(); p != nil {
					failure.Store(&p)
				}
			}()
			if sibling, err := c.openSibling(); err == nil { // otherwise, there is one less
				errs[i+1] = work(sibling)
				_ = sibling.Close()
			}
		})
	}
	errs[0] = work(c)
	others.Wait()
	if p := failure.Load(); p != nil {
		panic(*p)
	}
	return errors.Join(errs...)
}

func (e *elements) dumpAll(c *Conn) error {
	read := e.dumpKeys
	if e.set.Interval {
		read = e.dumpIntervals
	}
	if err := read(c); err != nil {
		return fmt.Errorf("dump elements of %s: %w", e.set.Name, err)
	}
	return nil
}

func (e *elements) dumpKeys(c *Conn) error {
	s, foreign := e.set, false
	s.Elements = make([]nft.Element, 0, codec.Room(e.count))
	if err := c.EachElement(s, e.family, func(el *codec.Element) error {
		foreign = foreign || el.IsForeign()
		s.Elements = append(s.Elements, el.Element)
		return nil
	}); err != nil {
		return err
	}
	if foreign {
		s.Key, s.Elements = nil, nil // not a set of ours
		return nil
	}
	if e.count != codec.UnknownCount && e.count != len(s.Elements) {
		return ErrInconsistent
	}
	s.Sort()
	for i := 1; i < len(s.Elements); i++ {
		if s.Elements[i].Key == s.Elements[i-1].Key {
			return ErrInconsistent
		}
	}
	return nil
}

// dumpIntervals fills an interval set. It is a tree, which is never resized, so
// its elements need not be counted.
func (e *elements) dumpIntervals(c *Conn) error {
	s := e.set
	var all []codec.Element
	if err := c.EachElement(s, e.family, func(el *codec.Element) error { all = append(all, *el); return nil }); err != nil {
		return err
	}
	understood := !slices.ContainsFunc(all, func(el codec.Element) bool { return el.IsForeign() })
	switch {
	case !understood:
	case s.Concat():
		s.Elements, understood = codec.ConcatIntervals(s, all)
		s.Sort()
	default:
		s.Elements = codec.JoinIntervals(all)
	}
	if !understood {
		s.Key, s.Elements = nil, nil // not a set of ours
	}
	return nil
}

// EachElement calls each for the elements of a set while they arrive: a dump can
// have tens of megabytes. The element is valid during the call only. [errEnough]
// ends the dump and closes the connection: there is no other way to stop the
// kernel from sending the rest.
func (c *Conn) EachElement(s *nft.Set, f model.Family, each func(*codec.Element) error) error {
	if err := c.drainIfDirty(); err != nil {
		return err
	}
	request, err := c.nl.Send(newQuestion(unix.NFT_MSG_GETSETELEM, netlink.Request|netlink.Dump, codec.InSet(s.Name, f)))
	if err != nil {
		return err
	}
	d := codec.NewElementDecoder(s, f)
	for m, err := range c.nl.ReceiveIter() {
		if err == nil {
			err = netlink.Validate(request, []netlink.Message{m})
		}
		if err == nil {
			err = d.Message(m.Data, each)
		}
		if errors.Is(err, errEnough) {
			return errors.Join(err, c.nl.Close()) // before the iterator receives the rest
		}
		if err != nil {
			c.noteFailure(err)
			return err
		}
	}
	return nil
}

var errEnough = errors.New("enough")

// eachOfFirst calls each for at most limit elements, and reports whether there are
// more.
func (c *Conn) eachOfFirst(limit int, s *nft.Set, f model.Family, each func(*codec.Element)) (more bool, err error) {
	n := 0
	err = c.EachElement(s, f, func(e *codec.Element) error {
		if n == limit {
			return errEnough
		}
		n++
		each(e)
		return nil
	})
	if errors.Is(err, errEnough) {
		return true, nil
	}
	return false, err
}
